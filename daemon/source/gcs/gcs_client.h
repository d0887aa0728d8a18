/* What all requests to Google Cloud Storage share: endpoint, token, who pays. One per process, kept by struct stores.
 * Thread-safe. */
#ifndef SOURCE_GCS_CLIENT_H
#define SOURCE_GCS_CLIENT_H

#include "source/http/http.h"
#include "source/store.h"
#include "source/stores.h"

/* Keys "sources.gcs.*" of the configuration. */
struct gcs_settings {
    struct store_settings base;
    const char *credentials_file;
    const char *user_project; /* who pays */
    bool is_anonymous;
};

extern const struct config_section gcs_settings_section;
void gcs_settings_complete(const void *configured, void *settings, struct arena *arena);

struct gcs_client;

struct gcs_client *gcs_client_of(struct stores *stores);
/* Of struct store. */
void *gcs_client_connect(struct stores *stores);
void gcs_client_disconnect(void *client);
void gcs_client_describe(struct stores *stores, struct store_line *line);

/* 0 when the configured endpoint may be talked to. */
int gcs_client_check(struct gcs_client *client, struct error *error);
/* ".../storage/v1/b/BUCKET/o", with "/OBJECT" unless it is NULL, and the query, which says which project pays, if not the
 * bucket's. Malloced. */
char *gcs_client_url(struct gcs_client *client, const char *bucket, const char *object, const char *query);
char *gcs_client_upload_url(struct gcs_client *client, const char *bucket, const char *query); /* where objects are made */

/* Of a struct http_store whose data is the client. */
int gcs_client_prepare(void *client, struct http_attempt *attempt, struct error *error);
enum http_verdict gcs_client_judge(void *client, const struct http_reply *reply, struct error *error);

#endif
