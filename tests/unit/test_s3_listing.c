/* Pages of listings: what real servers write is understood, what makes no sense is refused. */
#include "tests/support/unit.h"

#include "source/s3/s3_listing.h"

#define PAGE(body)                                                                                                          \
    "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" body                    \
    "</ListBucketResult>"

static int parse(const char *text, struct s3_listing *listing)
{
    struct error error;
    return s3_listing_parse(text, strlen(text), listing, &error);
}

TEST(keys_sizes_and_etags_are_read)
{
    struct s3_listing listing;
    assert_int_equal(
        parse(PAGE("<Name>b</Name><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><KeyCount>3</KeyCount>"
                   "<NextContinuationToken>L/06 +&amp;</NextContinuationToken>"
                   "<Contents><Key>m/a%2Bb+c%C3%BC.safetensors</Key><LastModified>x</LastModified><ETag>&quot;abc-3&quot;</"
                   "ETag>"
                   "<Size>18446744073709551615</Size><Owner><ID>1</ID><Key>no</Key></Owner><StorageClass>S</StorageClass></"
                   "Contents>"
                   "<Contents><Size>0</Size><ETag>abc</ETag><Key>m/</Key></Contents>"
                   "<Contents><Size>1</Size><ETag/><Key>m/x</Key></Contents>"
                   "<CommonPrefixes><Prefix>m/sub/</Prefix></CommonPrefixes>"),
              &listing),
        0);
    assert_int_equal(listing.n_entries, 3);
    assert_int_equal(listing.n_prefixes, 1);
    assert_string_equal(listing.prefixes[0], "m/sub/");
    assert_string_equal(listing.entries[0].key, "m/a+b c\xc3\xbc.safetensors");
    assert_string_equal(listing.entries[0].etag, "\"abc-3\"");
    assert_true(listing.entries[0].size_bytes == UINT64_MAX);
    assert_string_equal(listing.entries[1].etag, "\"abc\"");
    assert_null(listing.entries[2].etag);
    assert_string_equal(listing.next_token, "L/06 +&");
    s3_listing_clear(&listing);
}

TEST(keys_stay_as_they_are_when_the_server_does_not_encode)
{
    struct s3_listing listing;
    assert_int_equal(parse(PAGE("<Contents><Key>a%2Fb+c</Key><Size>1</Size></Contents><IsTruncated>false</IsTruncated>"
                                "<NextContinuationToken>left over</NextContinuationToken>"),
                           &listing),
                     0);
    assert_string_equal(listing.entries[0].key, "a%2Fb+c");
    assert_null(listing.next_token);
    s3_listing_clear(&listing);
    assert_int_equal(parse(PAGE(""), &listing), 0);
    assert_int_equal(listing.n_entries, 0);
    s3_listing_clear(&listing);
}

TEST(an_etag_that_no_request_could_carry_is_none)
{
    static const struct {
        const char *text, *etag;
    } rows[] = {{"&quot;", NULL},         {"&quot;a", NULL},      {"&quot;a&quot;b", NULL},
                {"a&quot;b", NULL},       {"a&#13;&#10;b", NULL}, {"a b", NULL},
                {"&#228;", NULL},         {"W/a", NULL},          {"W/&quot;a&quot;", "W/\"a\""},
                {"&quot;&quot;", "\"\""}, {"a", "\"a\""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct s3_listing listing;
        struct error error;
        char text[256];
        int length = snprintf(text, sizeof text,
                              "<ListBucketResult><Contents><Key>k</Key><Size>1</Size><ETag>%s</ETag></Contents>"
                              "</ListBucketResult>",
                              rows[i].text);
        assert_int_equal(s3_listing_parse(text, (size_t)length, &listing, &error), 0);
        if (rows[i].etag)
            assert_string_equal(listing.entries[0].etag, rows[i].etag);
        else
            assert_null(listing.entries[0].etag);
        s3_listing_clear(&listing);
    }
}

TEST(the_listing_tells_for_which_objects_a_checksum_can_be_asked)
{
    static const struct {
        const char *elements;
        enum s3_checksum_hint hint;
    } cases[] = {
        {"", S3_CHECKSUM_UNKNOWN},
        {"<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>", S3_CHECKSUM_WHOLE},
        {"<ChecksumAlgorithm>SHA1</ChecksumAlgorithm><ChecksumAlgorithm>CRC32C</ChecksumAlgorithm>", S3_CHECKSUM_WHOLE},
        {"<ChecksumAlgorithm>SHA1</ChecksumAlgorithm>", S3_CHECKSUM_USELESS},
        {"<ChecksumType>COMPOSITE</ChecksumType><ChecksumAlgorithm>CRC32</ChecksumAlgorithm>", S3_CHECKSUM_USELESS}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[600];
        struct s3_listing listing;
        snprintf(text, sizeof text, PAGE("<Contents><Key>k</Key><Size>1</Size>%s</Contents>"), cases[i].elements);
        assert_int_equal(parse(text, &listing), 0);
        assert_int_equal(listing.entries[0].checksum, cases[i].hint);
        s3_listing_clear(&listing);
    }
}

TEST(pages_that_make_no_sense_are_refused)
{
    static const char *const pages[] = {
        "",
        "<html/>",
        "<Error><Code>x</Code></Error>",
        "<ListBucketResult>",
        PAGE("<Contents><Key>k</Key></Contents>"),
        PAGE("<Contents><Size>1</Size></Contents>"),
        PAGE("<Contents><Key>k</Key><Size></Size></Contents>"),
        PAGE("<Contents><Key>k</Key><Size>-1</Size></Contents>"),
        PAGE("<Contents><Key>k</Key><Size>18446744073709551616</Size></Contents>"),
        PAGE("<Contents><Key>k</Key><Size>1.5</Size></Contents>"),
        PAGE("<Contents><Key><b/></Key><Size>1</Size></Contents>"),
        PAGE("<IsTruncated>true</IsTruncated>"),
        PAGE("<IsTruncated>true</IsTruncated><NextContinuationToken/>"),
        PAGE("<EncodingType>url</EncodingType><Contents><Key>%</Key><Size>1</Size></Contents>"),
        PAGE("<EncodingType>url</EncodingType><Contents><Key>a%2</Key><Size>1</Size></Contents>"),
        PAGE("<EncodingType>url</EncodingType><Contents><Key>a%zz</Key><Size>1</Size></Contents>"),
        PAGE("<EncodingType>url</EncodingType><Contents><Key>a%00</Key><Size>1</Size></Contents>"),
    };
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        struct s3_listing listing;
        if (parse(pages[i], &listing) == 0)
            fail_msg("taken: %s", pages[i]);
        assert_int_equal(listing.n_entries, 0);
    }
}

static int parse_many(int n_entries)
{
    static const char entry[] = "<Contents><Key>k</Key><Size>1</Size></Contents>";
    struct s3_listing listing;
    char *text = malloc((size_t)n_entries * sizeof entry + 100), *at = text;
    at += sprintf(at, "<ListBucketResult>");
    for (int i = 0; i < n_entries; i++)
        at += sprintf(at, "%s", entry);
    sprintf(at, "</ListBucketResult>");
    int failed = parse(text, &listing);
    s3_listing_clear(&listing);
    free(text);
    return failed;
}

TEST(a_page_has_a_limited_number_of_entries)
{
    assert_int_equal(parse_many(S3_MAX_PAGE_ENTRIES), 0);
    assert_int_equal(parse_many(S3_MAX_PAGE_ENTRIES + 1), -1);
}
