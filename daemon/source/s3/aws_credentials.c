/* The chain's keys with the life of a renewal. */
#include "source/s3/aws_credentials.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/s3/aws_chain.h"
#include "source/renewal.h"

struct aws_credentials {
    struct aws_chain chain; /* its texts are ours */
    bool anonymous;
    struct renewal renewal; /* of a struct aws_keys */
};

static int fetch_keys(void *owner, const struct cancel *cancel, void **value, int64_t *expires, struct error *error)
{
    const struct aws_credentials *credentials = owner;
    struct aws_keys *keys = memory_alloc(sizeof *keys);
    if (aws_chain_load(&credentials->chain, cancel, keys, error) < 0) {
        free(keys);
        return -1;
    }
    *value = keys;
    *expires = keys->expires;
    return 0;
}

static void copy_keys(const void *value, void *out)
{
    aws_keys_copy(out, value);
}

static void destroy_keys(void *value)
{
    aws_keys_clear(value);
    free(value);
}

static const struct renewal_rules rules = {
    .what = "keys for S3", .before_s = 600, .fetch = fetch_keys, .copy = copy_keys, .destroy = destroy_keys};

struct aws_credentials *aws_credentials_create(const struct aws_credentials_options *options)
{
    struct aws_credentials *credentials = memory_alloc(sizeof *credentials);
    bool named = options->profile && *options->profile;
    credentials->chain.http = options->http;
    credentials->chain.profile = memory_copy_text(named ? options->profile : "default");
    credentials->chain.region = memory_copy_text(options->region ? options->region : "");
    credentials->chain.ca_file = options->ca_file;
    credentials->chain.use_environment = !named || aws_chain_environment_names(options->profile);
    credentials->anonymous = options->anonymous;
    renewal_init(&credentials->renewal, &rules, credentials, options->now);
    return credentials;
}

void aws_credentials_destroy(struct aws_credentials *credentials)
{
    if (!credentials)
        return;
    renewal_fini(&credentials->renewal);
    memory_free_const(credentials->chain.profile);
    memory_free_const(credentials->chain.region);
    free(credentials);
}

int aws_credentials_get(struct aws_credentials *credentials, const struct cancel *cancel, struct aws_keys *keys,
                        struct error *error)
{
    uint64_t generation;
    *keys = (struct aws_keys){0};
    if (credentials->anonymous)
        return 0;
    if (renewal_get(&credentials->renewal, cancel, keys, &generation, error) < 0)
        return -1;
    keys->generation = generation;
    return 0;
}

void aws_credentials_refused(struct aws_credentials *credentials, uint64_t generation)
{
    renewal_refuse(&credentials->renewal, generation);
}

bool aws_credentials_of_instance(const struct aws_credentials *credentials)
{
    return !credentials->anonymous && aws_chain_of_instance(&credentials->chain);
}

void aws_credentials_describe(struct aws_credentials *credentials, char text[AWS_DESCRIBE_CHARS])
{
    if (credentials->anonymous)
        memcpy(text, "anonymous", sizeof "anonymous");
    else
        aws_chain_describe(&credentials->chain, text, AWS_DESCRIBE_CHARS);
}
