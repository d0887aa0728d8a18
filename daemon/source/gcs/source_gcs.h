/* "gs://bucket/prefix" or "gs://bucket/object.safetensors": objects of Google Cloud Storage by its JSON API. Every range is
 * pinned to the generation that the listing told. */
#ifndef SOURCE_SOURCE_GCS_H
#define SOURCE_SOURCE_GCS_H

#include "source/store.h"

extern const struct store source_gcs_store;

#endif
