/* The formats there are; a file of its own, so that a test may have others. See format.h. */
#include "resolve/safetensors.h"

const struct format *const formats[] = {&format_safetensors};
const size_t n_formats = sizeof formats / sizeof *formats;
