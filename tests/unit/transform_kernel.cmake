# The GPU's kernels, compiled for the CPU: where CUDA's headers and a C++ compiler are.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  pinserve_test(client-transform-kernel SOURCES client_transform_kernel.cpp LIBRARIES pinclient-objects)
  target_include_directories(test-client-transform-kernel SYSTEM PRIVATE ${PINSERVE_CUDA_INCLUDE})
  # Warnings that C++ has no use for.
  get_target_property(_options test-client-transform-kernel COMPILE_OPTIONS)
  list(FILTER _options EXCLUDE REGEX "-W(shadow|strict-prototypes|missing-prototypes)")
  set_target_properties(test-client-transform-kernel PROPERTIES
    CXX_STANDARD 17 CXX_EXTENSIONS OFF
    COMPILE_OPTIONS "${_options};-Wno-unknown-pragmas")
endif()
