/*
 * No kernels: for builds without nvcc.
 */
#include "transform.h"

const void *const transform_image = NULL;
