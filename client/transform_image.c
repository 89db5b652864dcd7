/*
 * The kernels of transform.cu, as nvcc compiled them for every GPU, within the
 * library.
 */
#include "transform.h"

__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        ".hidden pinclient_transform_fatbin\n"
        ".global pinclient_transform_fatbin\n"
        "pinclient_transform_fatbin:\n"
        ".incbin \"" TRANSFORM_FATBIN "\"\n"
        ".popsection\n");

extern const unsigned char pinclient_transform_fatbin[] __attribute__((visibility("hidden")));

const void *const transform_image = pinclient_transform_fatbin;
