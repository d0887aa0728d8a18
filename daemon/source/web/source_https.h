/* "https://host/model" or one ".safetensors" file behind a web server, and "http://" where stores_check_url() allows it. */
#ifndef SOURCE_SOURCE_HTTPS_H
#define SOURCE_SOURCE_HTTPS_H

#include "source/source.h"
#include "source/stores.h"

extern const struct source_ops source_https_ops, source_http_ops;
void source_https_describe(struct stores *stores, struct stores_line *line);

#endif
