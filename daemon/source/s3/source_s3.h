/* "s3://bucket/prefix" or "s3://bucket/key.safetensors": objects of Amazon S3 and of what speaks like it. Every range is
 * pinned by If-Match to the ETag that the listing told. */
#ifndef SOURCE_SOURCE_S3_H
#define SOURCE_SOURCE_S3_H

#include "source/source.h"
#include "source/stores.h"

extern const struct source_ops source_s3_ops;

#endif
