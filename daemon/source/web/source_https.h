/* "https://host/model" or one ".safetensors" file behind a web server, and "http://" where http_fence_check() allows it. */
#ifndef SOURCE_SOURCE_HTTPS_H
#define SOURCE_SOURCE_HTTPS_H

#include "source/store.h"

extern const struct store source_https_store;

#endif
