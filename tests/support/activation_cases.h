/* Samples of tests of activation stores, and a host's folder to put them into. */
#ifndef SUPPORT_ACTIVATION_CASES_H
#define SUPPORT_ACTIVATION_CASES_H

#include "activations/host_folder.h"

struct case_sample { /* two layers of F32; its bytes are (id + position) % 251 */
    struct sample sample;
    struct sample_tensor tensors[2];
    uint64_t shape[2];
    unsigned char *bytes; /* free() */
    char info[48];
};

/* `sample` points into itself: not to be copied. rows of 16 elements in each layer. */
void case_sample_make(struct case_sample *made, uint32_t id, uint64_t rows);

struct host_folder *case_folder_open(const char *root, uint64_t segment_bytes); /* ROOT/acts, host 3; fails the test else */
void case_folder_append(struct host_folder *folder, uint32_t id, uint64_t rows);
/* Seals what is full; `all`: what is open as well. */
void case_folder_seal(struct host_folder *folder, bool all);

#endif
