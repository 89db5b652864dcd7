# pinclient_transform.
foreach(name plan cut host)
  pinserve_test(client-transform-${name} SOURCES client_transform_${name}.c LIBRARIES pinclient-objects)
endforeach()
pinserve_test(client-transform SOURCES client_transform.c LIBRARIES client-peer THREADS)

if(PINSERVE_HAVE_CUDA)
  pinserve_test(client-device-transform SOURCES client_device_transform.c LIBRARIES pinclient-objects
                ${CMAKE_DL_LIBS})
  target_include_directories(test-client-device-transform SYSTEM PRIVATE ${PINSERVE_CUDA_INCLUDE})
  add_dependencies(test-client-device-transform pinserve-test-driver)
  set_tests_properties(client-device-transform PROPERTIES
    ENVIRONMENT "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/tests/driver")
endif()

# The GPU's kernels, compiled for the CPU: where CUDA's headers and a C++ compiler are.
include(CheckLanguage)
check_language(CXX)
if(PINSERVE_HAVE_CUDA AND CMAKE_CXX_COMPILER)
  enable_language(CXX)
  pinserve_test(client-transform-kernel SOURCES client_transform_kernel.cpp LIBRARIES pinclient-objects)
  target_include_directories(test-client-transform-kernel SYSTEM PRIVATE ${PINSERVE_CUDA_INCLUDE})
  # Warnings that C++ has no use for.
  get_target_property(_options test-client-transform-kernel COMPILE_OPTIONS)
  list(FILTER _options EXCLUDE REGEX "-W(shadow|strict-prototypes|missing-prototypes)")
  set_target_properties(test-client-transform-kernel PROPERTIES
    CXX_STANDARD 17 CXX_EXTENSIONS OFF COMPILE_OPTIONS "${_options};-Wno-unknown-pragmas;-O1")
endif()
