/* A temporary folder for tests, and safetensors files put together by hand in it. Everything aborts on failure. */
#ifndef TESTS_SUPPORT_MODEL_DIR_H
#define TESTS_SUPPORT_MODEL_DIR_H

#include <stddef.h>
#include <stdint.h>

enum { MODEL_PATH_CHARS = 512 };

/* Absolute and without links. */
void model_dir_create(char path[MODEL_PATH_CHARS]);
void model_dir_destroy(const char *path); /* with everything in it */

/* Joins into `out` and returns it. */
const char *model_dir_path(const char *directory, const char *name, char out[MODEL_PATH_CHARS]);
void model_dir_write(const char *directory, const char *name, const void *bytes, size_t n_bytes);
void model_dir_mkdir(const char *directory, const char *name);
void model_dir_link(const char *directory, const char *name, const char *target);
/* length | header | n_data bytes that count up from 0. */
void model_dir_safetensors(const char *directory, const char *name, const char *header, size_t n_data);

#endif
