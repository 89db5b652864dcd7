#!/bin/sh
# Everything that must hold: builds without warnings in the three presets, the layout and the
# analysis of the code, the threads' tests with ThreadSanitizer, every test in release and in dev.
# What failed is told before ctest's last summary, and the exit status is 1 then. Tests of processes
# that are killed and waited for run beside others on shared machines: what fails is run once more, in
# view, and fails when it fails again.
set -u
cd "$(dirname "$0")/.."

jobs=$(nproc)
started=$(date +%s)
failed=

step() {
    name=$1
    shift
    printf '\n== %s (after %d s)\n' "$name" $(($(date +%s) - started))
    "$@" || failed="$failed
  $name"
}

build() {
    cmake --preset "$1" -DPINSERVE_WERROR=ON >build/configure.log 2>&1 || {
        cat build/configure.log
        return 1
    }
    # One file that does not compile must not hide what the others do.
    cmake --build --preset "$1" -j "$jobs" -- -k 0
}

sources() {
    find client daemon proto tests -name "$1" | LC_ALL=C sort
}

check_format() {
    sources '*.[ch]' | xargs clang-format --dry-run -Werror
}

# Files that are compiled here, each once; what cmake generates is not ours to judge.
check_tidy() {
    sources '*.c' >build/sources
    sed -n "s#^ *\"file\": \"$(pwd)/\\(.*\\)\".*#\\1#p" build/release/compile_commands.json |
        LC_ALL=C sort -u | LC_ALL=C comm -12 - build/sources |
        xargs -P "$jobs" -n 3 clang-tidy --quiet -p build/release 2>build/tidy.log || {
        # Its counts of suppressed warnings go to stderr, and so do its errors.
        grep -v 'warnings\? \(generated\|treated\)' build/tidy.log
        return 1
    }
}

# The Python package's types, as the oldest Python that it is for has them.
check_types() {
    mypy --strict --python-version 3.9 --ignore-missing-imports --cache-dir build/mypy \
        client/python/pinclient
}

# Where the kernel spreads addresses wider than gcc 12's ThreadSanitizer knows, nothing starts.
run_threads() {
    echo 'int main(void) { return 0; }' >build/trivial.c
    cc -fsanitize=thread build/trivial.c -o build/trivial || return 1
    if build/trivial 2>/dev/null; then
        ctest --preset tsan -j "$jobs" --repeat until-pass:2
    elif setarch -R build/trivial; then
        setarch -R ctest --preset tsan -j "$jobs" --repeat until-pass:2
    else
        echo "ThreadSanitizer does not start here, and setarch -R does not help"
        return 1
    fi
}

sh tests/setup.sh || exit 1
mkdir -p build

step "build release" build release
step "build dev" build dev
step "build tsan" build tsan
step "clang-format" check_format
step "clang-tidy" check_tidy
step "mypy" check_types
step "tests of threads, tsan" run_threads
step "tests, release" ctest --preset release -j "$jobs" --repeat until-pass:2
before=$failed
if [ -n "$before" ]; then
    printf '\n== FAILED so far:%s\n' "$before"
fi
step "tests, dev" ctest --preset dev -j "$jobs" --repeat until-pass:2
[ -z "$failed" ]
