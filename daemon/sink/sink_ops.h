/* What a store adds to sink_put(): requests, and what their answers mean. A row of sink_table in sink.c each. */
#ifndef SINK_SINK_OPS_H
#define SINK_SINK_OPS_H

#include "base/checksum.h"
#include "sink/sink.h"

enum { SINK_ETAG_CHARS = SINK_VERSION_CHARS, SINK_MD5_BYTES = 16 };

struct sink_object { /* what the store says of an object that is there */
    uint64_t size_bytes;
    struct checksum checksum;         /* a CRC-32C of the whole, or kind CHECKSUM_NONE */
    char etag[SINK_ETAG_CHARS];       /* quoted; "" = none, or not made of MD5 sums */
    char version[SINK_VERSION_CHARS]; /* what names exactly this version; "" = nothing does */
};

struct sink_part {
    uint32_t number; /* from 0 */
    uint64_t offset;
    const void *bytes;
    size_t count;
    uint32_t crc32c;
    unsigned char md5[SINK_MD5_BYTES];
    bool has_md5; /* the store asks for it and this host's libcrypto has it */
    bool is_last;
};

struct sink_stored { /* a part as the store has it */
    bool is_stored, has_crc32c;
    uint64_t count;
    uint32_t crc32c;
    char etag[SINK_ETAG_CHARS]; /* "" = the store gives none */
};

struct sink_limits {
    uint64_t whole_bytes; /* up to here one request does */
    uint64_t part_bytes;  /* least of a part but the last one; parts are of whole MiB */
    bool in_order;        /* a part only after the one before */
    bool has_md5;
};

struct sink { /* one object; the driver's, except for `state` */
    const struct sink_ops *ops;
    struct stores *stores;
    char *bucket, *key;
    const struct sink_upload *upload;
    char *session;      /* NULL = nothing is begun */
    bool has_whole_crc; /* what is begun: the store compares the CRC-32C of parts and whole, so that MD5 is not needed */
    uint64_t part_bytes;
    uint32_t n_parts;
    struct sink_stored *stored; /* n_parts */
    void *state;                /* of the ops; freed with free() */
};

struct sink_ops {
    const char *scheme; /* "gs" */
    struct sink_limits limits;
    /* NOT_FOUND when there is none. */
    int (*look)(struct sink *sink, struct sink_object *object, struct error *error);
    /* In one request. By the store's condition what sink_fail_exists() says. */
    int (*put_whole)(struct sink *sink, const struct sink_part *part, struct sink_object *made, struct error *error);
    int (*begin)(struct sink *sink, struct error *error); /* sets session and has_whole_crc */
    /* Fills stored[] and has_whole_crc from the session. UPLOAD_GONE (an error kind): the store does not know it any more. */
    int (*find_parts)(struct sink *sink, struct error *error);
    /* Fills stored[number]; may change session, where parts go in order. */
    int (*put_part)(struct sink *sink, const struct sink_part *part, struct error *error);
    /* The object is there from now on. sink_fail_exists(), UPLOAD_GONE. `made` may lack what look() says. */
    int (*complete)(struct sink *sink, struct sink_object *made, struct error *error);
    void (*abort)(struct sink *sink); /* the session, as far as it can be */
    /* Removes exactly that version, which holds other bytes than were sent. */
    void (*drop)(struct sink *sink, const struct sink_object *object);
    /* Reads all of that version back; bytes NULL = throws it away. */
    int (*read_back)(struct sink *sink, const struct sink_object *object, void *bytes, uint32_t *crc32c,
                     struct error *error);
};

extern const struct sink_ops sink_file_ops, sink_gcs_ops, sink_s3_ops;

/* Fills ops, bucket and key by "gs://bucket/key". */
int sink_parse(struct sink *sink, const char *reference, struct error *error);
/* The same of an upload's reference; stores_check_reference() as well. */
int sink_open(struct sink *sink, struct error *error);
void sink_fini(struct sink *sink);
struct http_store;
/* read_back of a store that is asked by HTTP: all of that version from `url`, as `store` asks. */
int sink_read_url(const struct sink *sink, const struct http_store *store, const char *url, const struct sink_object *object,
                  void *bytes, uint32_t *crc32c, struct error *error);
bool sink_has_condition(const struct sink *sink);                       /* not everything may be replaced */
int sink_fail_exists(const struct sink *sink, struct error *error);     /* ALREADY_EXISTS; with if_version ABORTED */
bool sink_is_refused(const struct error *error);                        /* by that */
int sink_fail_conditions(const struct sink *sink, struct error *error); /* UNIMPLEMENTED: the store knows none */
int sink_fail_gone(const struct sink *sink, struct error *error);       /* UPLOAD_GONE */
enum { SINK_CRC_TEXT_CHARS = 9 };
void sink_crc_text(uint32_t crc32c, char text[SINK_CRC_TEXT_CHARS]); /* base64 of its bytes, big endian */
/* Waits before try number n (from 1), random up to a bound that doubles; CANCELLED. */
int sink_pause(const struct sink *sink, uint32_t n, struct error *error);

#endif
