/* Private to aws_credentials.c: one walk over the places where keys may be. Stateless, so any thread. */
#ifndef SOURCE_AWS_CHAIN_H
#define SOURCE_AWS_CHAIN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cancel.h"
#include "source/s3/aws_keys.h"
#include "source/http/http.h"

struct aws_chain {
    struct http_engine *http;
    const char *profile;
    const char *region;  /* "" = the profile's */
    const char *ca_file; /* of STS, or NULL */
    bool use_environment;
};

int aws_chain_load(const struct aws_chain *chain, const struct cancel *cancel, struct aws_keys *keys, struct error *error);
void aws_chain_describe(const struct aws_chain *chain, char *text, size_t text_chars);
/* Whether keys would come from the instance's metadata. */
bool aws_chain_of_instance(const struct aws_chain *chain);
/* Whether AWS_PROFILE (or AWS_DEFAULT_PROFILE) names this profile. */
bool aws_chain_environment_names(const char *profile);

#endif
