/* Answers of S3 about multipart uploads: XML. Pure; any thread. */
#ifndef SINK_S3_ANSWER_H
#define SINK_S3_ANSWER_H

#include "sink/sink_ops.h"

/* <InitiateMultipartUploadResult>; malloced, NULL when it is none. */
char *s3_answer_upload_id(const char *bytes, size_t count);

struct s3_part_page {
    bool is_truncated;
    uint32_t next_marker;
};
/* Whether a session of that algorithm and type compares the CRC-32C of its parts and of the whole; NULL = nothing is said. */
bool s3_answer_is_whole_crc(const char *algorithm, const char *type);
/* <ListPartsResult>: fills sink->stored[] and has_whole_crc. Parts that this upload does not have are left out. False: it is
 * none. */
bool s3_answer_parts(const char *bytes, size_t count, struct sink *sink, struct s3_part_page *page);

bool s3_answer_is_complete(const char *bytes, size_t count); /* <CompleteMultipartUploadResult> */
/* Printable, and can stand in XML as it is. */
bool s3_answer_is_etag(const char *text);

#endif
