#!/bin/sh
# Installs the build to a fresh prefix and uses the library from outside the tree: by pkg-config, by
# find_package, from C and C++; checks that files are where they belong and what is exported.
# usage: install.sh BUILD SOURCE VERSION CC [CXX]
set -eu
build=$1 source=$2 version=$3 cc=$4 cxx=${5-}
major=${version%%.*}
work=$(mktemp -d "${TMPDIR:-/tmp}/install.XXXXXX")
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() {
    echo "install: $*" >&2
    exit 1
}

# Staged: a build for /usr has its configuration in /etc, whatever prefix is given here.
DESTDIR=$work/stage cmake --install "$build" --prefix "$prefix" >"$work/install.log" 2>&1 ||
    { cat "$work/install.log"; fail "cmake --install failed"; }
mv "$work/stage$prefix" "$prefix"
etc=$prefix/etc
[ -d "$etc" ] || etc=$work/stage/etc

# -- where the files are ---------------------------------------------------------------------------
library=$(find "$prefix" -name "libpinclient.so.$version")
[ -n "$library" ] || fail "no libpinclient.so.$version"
libdir=$(dirname "$library")
case $libdir in
"$prefix"/lib*) ;;
*) fail "the library is in $libdir" ;;
esac
[ "$(readlink "$libdir/libpinclient.so")" = "libpinclient.so.$major" ] || fail "libpinclient.so"
[ "$(readlink "$libdir/libpinclient.so.$major")" = "libpinclient.so.$version" ] || fail "soname link"
readelf -d "$library" | grep -q "SONAME.*\[libpinclient.so.$major\]" || fail "soname"
for file in bin/pinctl include/pinclient.h "${libdir#"$prefix"/}/pkgconfig/libpinclient.pc" \
    "${libdir#"$prefix"/}/cmake/pinclient/pinclient-config.cmake"; do
    [ -f "$prefix/$file" ] || fail "$file is missing"
done
[ -f "$etc/pinserve/pinserved.conf" ] || fail "etc/pinserve/pinserved.conf is missing"
for file in bin/pinserved lib/systemd/system/pinserved.service \
    lib/systemd/system/pinserved.socket lib/sysusers.d/pinserve.conf share/man/man1/pinctl.1 \
    share/man/man5/pinserved.conf.5 share/man/man8/pinserved.8; do
    [ -f "$prefix/$file" ] || fail "$file is missing"
    ! grep -I '@[A-Z_]*@' "$prefix/$file" || fail "$file has a name that was not filled in"
done
[ ! -e "$build/daemon/device/pinserved-device" ] ||
    [ -x "$prefix/libexec/pinserve/pinserved-device" ] || fail "pinserved-device is missing"
"$prefix/bin/pinserved" run -- true 2>"$work/run.log" || fail "pinserved run: $(cat "$work/run.log")"
[ ! -e "$build/daemon/device/pinserved-device" ] || ! grep "GPUs are not served" "$work/run.log" ||
    fail "pinserved does not find the program that was installed with it"
[ "$(find "$prefix/include" -type f | wc -l)" = 1 ] || fail "more than one public header"
! grep -rl "$prefix" "$libdir/cmake/pinclient" || fail "the CMake package names its prefix"

# -- what is exported ------------------------------------------------------------------------------
nm -D --defined-only "$library" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort >"$work/exported"
sed -n 's/^ *\(pinclient_[a-z_]*\);$/\1/p' "$source/client/pinclient.map" | sort >"$work/mapped"
sed -n '/^PINCLIENT_API/s/.*\(pinclient_[a-z_]*\)(.*/\1/p' "$source/client/include/pinclient.h" | sort \
    >"$work/declared"
diff "$work/mapped" "$work/exported" || fail "exports are not those of pinclient.map"
diff "$work/declared" "$work/exported" || fail "exports are not those of pinclient.h"

# -- programs outside the tree ---------------------------------------------------------------------
mkdir "$work/outside"
cd "$work/outside"
cat >version.c <<'END'
#include <pinclient.h>
#include <stdio.h>

int main(void)
{
    struct pinclient_spec *spec;

    if (pinclient_spec_new(&spec) < 0 || pinclient_spec_depth(spec, 1000) == 0)
        return 1;
    puts(pinclient_version());
    pinclient_spec_free(spec);
    return 0;
}
END
cp version.c version.cc

check() {
    printed=$("$@") || fail "$1 failed"
    [ "$printed" = "$version" ] || fail "$1 printed $printed"
}

PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
[ "$(pkg-config --modversion libpinclient)" = "$version" ] || fail "the version of libpinclient.pc"
# shellcheck disable=SC2046
"$cc" -std=c99 -Wall -Wextra -pedantic -Werror -o by-pkg-config version.c \
    $(pkg-config --cflags --libs libpinclient)
check env LD_LIBRARY_PATH="$libdir" ./by-pkg-config
if [ -n "$cxx" ]; then
    # shellcheck disable=SC2046
    "$cxx" -std=c++11 -Wall -Wextra -Werror -o by-pkg-config-cxx version.cc \
        $(pkg-config --cflags --libs libpinclient)
    check env LD_LIBRARY_PATH="$libdir" ./by-pkg-config-cxx
fi

cat >CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.18)
project(outside LANGUAGES C)
find_package(pinclient ${version%.*} REQUIRED)
add_executable(by-cmake version.c)
target_link_libraries(by-cmake PRIVATE pinclient::pinclient)
END
cmake -S . -B build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" >cmake.log 2>&1 &&
    cmake --build build >>cmake.log 2>&1 || { cat cmake.log; fail "find_package(pinclient)"; }
check build/by-cmake
sed -i "s/find_package(pinclient .* REQUIRED)/find_package(pinclient 99 REQUIRED)/" CMakeLists.txt
! cmake -S . -B build-99 -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" >cmake.log 2>&1 ||
    fail "version 99 was found"

# The example is plain C with the public header only.
# shellcheck disable=SC2046
"$cc" -std=c17 -Wall -Wextra -Werror -o trainer "$source/client/example/trainer.c" \
    $(pkg-config --cflags --libs libpinclient)
[ "$(wc -l <"$source/client/example/trainer.c")" -le 80 ] || fail "the example is over 80 lines"
echo "install: version $version, $(wc -l <"$work/exported") exported functions"
