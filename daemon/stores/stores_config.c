/* Field by field. What is empty or at its default here is looked up in the environment by stores_create(). */
#include "stores/stores_config.h"

enum { NO_HEDGING = 101 };

static struct http_engine_options http_options(const struct config *config)
{
    return (struct http_engine_options){
        .max_connections = (uint32_t)config->http.max_connections,
        .max_host_connections = (uint32_t)config->http.max_host_connections,
        .max_tries = (uint32_t)config->http.max_tries,
        .connect_timeout_ms = config->http.connect_timeout_ms,
        .first_byte_timeout_ms = config->http.first_byte_timeout_ms,
        .stall_timeout_ms = config->http.stall_timeout_ms,
        .progress_timeout_ms = config->http.progress_timeout_ms,
        .hedge_after_ms = config->http.hedge_after_ms,
        .hedge_percent = config->http.hedge_percent ? (uint32_t)config->http.hedge_percent : NO_HEDGING,
        .ca_file = config->http.ca_file,
    };
}

struct stores_options stores_config(const struct config *config)
{
    static const char *const addressing[] = {"auto", "path", "virtual"};
    return (struct stores_options){
        .http = http_options(config),
        .request_bytes = config->http.request_bytes,
        .allow_plain_http = config->http.allow_plain,
        .trusted_urls = config->trusted.urls,
        .n_trusted_urls = config->trusted.n_urls,
        .https_off = !config->https.enabled,
        .gcs_off = !config->gcs.enabled,
        .s3_off = !config->s3.enabled,
        .hf_off = !config->hf.enabled,
        .gcs = {.endpoint = config->gcs.endpoint,
                .credentials_file = config->gcs.credentials_file,
                .user_project = config->gcs.user_project,
                .anonymous = config->gcs.anonymous},
        .s3 = {.endpoint = config->s3.endpoint,
               .region = config->s3.region,
               .profile = config->s3.profile,
               .addressing = addressing[config->s3.addressing],
               .anonymous = config->s3.anonymous,
               .requester_pays = config->s3.requester_pays},
        .hf = {.endpoint = config->hf.endpoint,
               .cache_dir = config->hf.cache_dir,
               .token_file = config->hf.token_file,
               .offline = config->hf.offline},
    };
}
