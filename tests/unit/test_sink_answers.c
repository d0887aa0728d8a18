/* Answers of S3 about multipart uploads. */
#include "tests/support/unit.h"

#include "sink/s3_answer.h"
#include "base/memory.h"

static char *upload_id(const char *text)
{
    return s3_answer_upload_id(text, strlen(text));
}

TEST(an_upload_id_is_found_or_there_is_none)
{
    char *id = upload_id("<InitiateMultipartUploadResult xmlns=\"x\"><Bucket>b</Bucket><UploadId>a/b+c</UploadId>"
                         "</InitiateMultipartUploadResult>");
    assert_string_equal(id, "a/b+c");
    free(id);
    assert_null(upload_id("<InitiateMultipartUploadResult><UploadId></UploadId></InitiateMultipartUploadResult>"));
    assert_null(upload_id("<Error><Code>NoSuchBucket</Code></Error>"));
    assert_null(upload_id("<InitiateMultipartUploadResult><UploadId>x</UploadId>"));
    assert_null(upload_id(""));
}

TEST(an_upload_id_has_8191_characters_at_most)
{
    char *long_id = memory_alloc(SINK_MAX_SESSION_CHARS + 1);
    memset(long_id, 'x', SINK_MAX_SESSION_CHARS);
    for (size_t cut = 0; cut < 2; cut++) {
        long_id[SINK_MAX_SESSION_CHARS - cut] = '\0';
        char *text =
            memory_print("<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", long_id);
        char *id = upload_id(text);
        assert_true((id != NULL) == (cut == 1));
        free(id);
        free(text);
    }
    free(long_id);
}

TEST(parts_of_a_list_are_kept_and_strange_ones_left_out)
{
    static const char text[] =
        "<ListPartsResult><IsTruncated>true</IsTruncated><NextPartNumberMarker>3</NextPartNumberMarker>"
        "<Part><PartNumber>1</PartNumber><ETag>&quot;e1&quot;</ETag><Size>10</Size>"
        "<ChecksumCRC32C>4waSgw==</ChecksumCRC32C></Part>"
        "<Part><PartNumber>3</PartNumber><ETag>e3</ETag><Size>7</Size></Part>"
        "<Part><PartNumber>2</PartNumber><ETag>e2</ETag><Size>-1</Size></Part>"
        "<Part><PartNumber>4</PartNumber><ETag>e4</ETag><Size>7</Size></Part>"
        "<Part><PartNumber>0</PartNumber><ETag>e0</ETag><Size>7</Size></Part>"
        "<Part><PartNumber>2</PartNumber><ETag>a&lt;b</ETag><Size>7</Size></Part></ListPartsResult>";
    struct sink_stored stored[3] = {0};
    struct sink sink = {.n_parts = 3, .stored = stored};
    struct s3_part_page page = {0};
    assert_true(s3_answer_parts(text, sizeof text - 1, &sink, &page));
    assert_true(page.is_truncated);
    assert_int_equal(page.next_marker, 3);
    assert_true(stored[0].is_stored && stored[2].is_stored && !stored[1].is_stored);
    assert_int_equal(stored[0].count, 10);
    assert_string_equal(stored[0].etag, "\"e1\"");
    assert_true(stored[0].has_crc32c && stored[0].crc32c == 0xe3069283 && !stored[2].has_crc32c);
    assert_false(sink.has_whole_crc);
    assert_false(s3_answer_parts("<Error/>", 8, &sink, &page));
    assert_false(s3_answer_parts("", 0, &sink, &page));
}

static bool list_is_whole_crc(const char *algorithm, const char *type)
{
    struct sink sink = {0};
    struct s3_part_page page = {0};
    char *text = memory_print("<ListPartsResult><ChecksumAlgorithm>%s</ChecksumAlgorithm><ChecksumType>%s</ChecksumType>"
                              "</ListPartsResult>",
                              algorithm, type);
    assert_true(s3_answer_parts(text, strlen(text), &sink, &page));
    free(text);
    return sink.has_whole_crc;
}

TEST(only_a_crc32c_of_the_whole_does_without_md5)
{
    assert_true(list_is_whole_crc("CRC32C", "FULL_OBJECT"));
    assert_false(list_is_whole_crc("CRC32C", "COMPOSITE"));
    assert_false(list_is_whole_crc("CRC32C", ""));
    assert_false(list_is_whole_crc("CRC64NVME", "FULL_OBJECT"));
    assert_false(list_is_whole_crc("CRC32C-and-something-longer", "FULL_OBJECT"));
    assert_false(s3_answer_is_whole_crc(NULL, "FULL_OBJECT"));
    assert_false(s3_answer_is_whole_crc("CRC32C", NULL));
}

TEST(a_200_that_holds_an_error_is_not_complete)
{
    static const char good[] = "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>";
    static const char bad[] = "<Error><Code>InternalError</Code></Error>";
    assert_true(s3_answer_is_complete(good, sizeof good - 1));
    assert_false(s3_answer_is_complete(good, sizeof good - 9));
    assert_false(s3_answer_is_complete(bad, sizeof bad - 1));
    assert_false(s3_answer_is_complete("", 0));
}
