/* What the command line of export, fuse and reshard says beyond the view. */
#ifndef CLI_EXPORT_ARGS_H
#define CLI_EXPORT_ARGS_H

#include <stdbool.h>
#include <stdint.h>

struct export_args {
    int format, uneven;      /* the enums of export/export_layout.h */
    uint64_t max_file_bytes; /* 0 = not given */
    uint64_t memory_bytes;   /* likewise */
    const char *mapping;     /* NULL = none */
    bool no_sidecars, force, resume, verify;
};

#endif
