/* Tensors in this process's memory, wherever they came from. Names and shapes are borrowed from what owns the memory. */
#ifndef CLI_LOADED_H
#define CLI_LOADED_H

#include "client/report_json.h"

struct loaded {
    struct report_json_tensor *tensors; /* view order */
    size_t n_tensors;
    const Tensorcast__Daemon__V1__LoadReport *report;
    void *copy;  /* of GPU memory, so that it can be looked at; NULL = none was needed */
    void *owner; /* of memory and report, known to the backend that loaded it */
};

#endif
