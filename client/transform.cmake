# The transform's kernels, for every GPU, as one file within the library. Without nvcc it has none.
set(_nvcc NVCC-NOTFOUND)
if(PINSERVE_HAVE_CUDA)
  find_program(PINSERVE_NVCC nvcc HINTS ${PINSERVE_CUDA_INCLUDE}/../bin /usr/local/cuda/bin)
  set(_nvcc ${PINSERVE_NVCC})
endif()

if(_nvcc)
  # CUDA 12.8 knows the newest of these.
  set(_flags)
  foreach(_arch 75 80 86 89 90 100 120)
    list(APPEND _flags -gencode arch=compute_${_arch},code=sm_${_arch})
  endforeach()
  # For what none of them fits: older relatives, and GPUs to come.
  foreach(_arch 75 120)
    list(APPEND _flags -gencode arch=compute_${_arch},code=compute_${_arch})
  endforeach()
  set(_fatbin ${CMAKE_CURRENT_BINARY_DIR}/transform.fatbin)
  add_custom_command(
    OUTPUT ${_fatbin}
    COMMAND ${_nvcc} -O3 -std=c++17 -ccbin ${CMAKE_C_COMPILER} ${_flags}
            -Xfatbin -compress-all -fatbin -o ${_fatbin} ${CMAKE_CURRENT_SOURCE_DIR}/transform.cu
    DEPENDS transform.cu transform_kernel.h
    COMMENT "Compiling the transform's kernels"
    VERBATIM)
  set_source_files_properties(transform_image.c PROPERTIES
    OBJECT_DEPENDS ${_fatbin}
    COMPILE_DEFINITIONS TRANSFORM_FATBIN="${_fatbin}")
  target_sources(pinclient-objects PRIVATE transform_image.c)
else()
  target_sources(pinclient-objects PRIVATE transform_image_none.c)
endif()
message(STATUS "Transform on GPUs: ${_nvcc}")
