/* "s3://bucket/prefix" or "s3://bucket/key.safetensors": objects of Amazon S3 and of what speaks like it. Every range is
 * pinned by If-Match to the ETag that the listing told. */
#ifndef SOURCE_SOURCE_S3_H
#define SOURCE_SOURCE_S3_H

#include "source/store.h"

extern const struct store source_s3_store;

#endif
