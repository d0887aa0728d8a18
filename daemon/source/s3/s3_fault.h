/* What an answer of S3 that is not 2xx means. Pure; any thread. */
#ifndef SOURCE_S3_FAULT_H
#define SOURCE_S3_FAULT_H

#include <stdint.h>

#include "base/error.h"
#include "source/http/http.h"

enum s3_fault_kind {
    S3_FAULT_FINAL,     /* asking again will not help */
    S3_FAULT_RETRY,     /* later */
    S3_FAULT_THROTTLED, /* later, and less at once */
    S3_FAULT_REGION,    /* the bucket lies in another region */
    S3_FAULT_CLOCK,     /* our clock is off by `clock_offset_s` */
    S3_FAULT_KEYS,      /* the keys are expired or unknown */
};

struct s3_fault {
    enum s3_fault_kind kind;
    char region[64];        /* where the bucket is, "" = not said */
    int64_t clock_offset_s; /* to be added to our clock */
};

/* `now` is our unix time. Fills the error for every kind: what the server said, without what could be secret in it. */
struct s3_fault s3_fault_of(const struct http_reply *reply, int64_t now, struct error *error);

#endif
