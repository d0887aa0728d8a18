/* Unknown elements are skipped; what matters must be there and make sense: a listing without a size or with a page that
 * promises more and does not say where is refused. Keys are decoded only when the server says that it encoded them. */
#include "source/s3/s3_listing.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/s3/xml.h"

struct page {
    struct xml xml;
    struct s3_listing *listing;
    bool truncated, encoded;
    const char *complaint;
};

void s3_listing_clear(struct s3_listing *listing)
{
    for (size_t i = 0; i < listing->n_entries; i++) {
        free(listing->entries[i].key);
        free(listing->entries[i].etag);
    }
    free(listing->entries);
    free(listing->next_token);
    *listing = (struct s3_listing){0};
}

char *s3_quote_etag(const char *etag)
{
    return *etag == '"' || strncmp(etag, "W/", 2) == 0 ? memory_copy_text(etag) : memory_print("\"%s\"", etag);
}

/* --- values --- */

static bool parse_size(const char *text, uint64_t *value)
{
    *value = 0;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9' || __builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(*c - '0'), value))
            return false;
    }
    return *text != '\0';
}

/* In place: "a%2Fb+c" -> "a/b c". False when it is no such encoding or hides a NUL. */
static bool decode(char *text)
{
    char *out = text;
    for (; *text; text++) {
        bool escaped = *text == '%';
        int high = escaped ? text_hex_digit(text[1]) : 0, low = escaped && high >= 0 ? text_hex_digit(text[2]) : 0;
        if (high < 0 || low < 0 || (escaped && high + low == 0))
            return false;
        *out++ = (char)(escaped ? high << 4 | low : *text == '+' ? ' ' : *text);
        text += escaped ? 2 : 0;
    }
    *out = '\0';
    return true;
}

static bool is_known_algorithm(const char *text)
{
    static const char *const known[] = {"CRC32", "CRC32C", "CRC64NVME", "SHA256"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcasecmp(known[i], text) == 0)
            return true;
    }
    return false;
}

/* --- elements --- */

struct contents {
    struct s3_entry entry;
    bool has_size, composite, named, known;
};

static void take_field(struct page *page, const struct xml_name *name, struct contents *contents)
{
    char *text;
    bool is_key = xml_name_is(name, "Key"), is_etag = xml_name_is(name, "ETag"), is_size = xml_name_is(name, "Size");
    bool is_algorithm = xml_name_is(name, "ChecksumAlgorithm"), is_type = xml_name_is(name, "ChecksumType");
    if (!is_key && !is_etag && !is_size && !is_algorithm && !is_type) {
        xml_skip(&page->xml);
        return;
    }
    if (!xml_take_text(&page->xml, &text))
        return;
    char **to = is_key ? &contents->entry.key : is_etag ? &contents->entry.etag : NULL;
    if (is_size)
        contents->has_size = parse_size(text, &contents->entry.size_bytes);
    contents->named |= is_algorithm;
    contents->known |= is_algorithm && is_known_algorithm(text);
    contents->composite |= is_type && strcasecmp(text, "COMPOSITE") == 0;
    if (to && !*to)
        *to = text;
    else
        free(text);
}

static void take_contents(struct page *page)
{
    struct contents contents = {0};
    struct s3_listing *listing = page->listing;
    struct xml_name name;
    while (xml_next(&page->xml, &name))
        take_field(page, &name, &contents);
    bool complete = contents.entry.key && contents.has_size && listing->n_entries < S3_MAX_PAGE_ENTRIES;
    if (page->xml.error || !complete) {
        page->complaint = "an entry without a key or a size, or too many of them";
        free(contents.entry.key);
        free(contents.entry.etag);
        return;
    }
    if (contents.named)
        contents.entry.checksum = contents.known && !contents.composite ? S3_CHECKSUM_WHOLE : S3_CHECKSUM_USELESS;
    ARRAY_RESERVE(listing->entries, listing->n_entries, listing->capacity);
    listing->entries[listing->n_entries++] = contents.entry;
}

static void take_element(struct page *page, const struct xml_name *name)
{
    char *text;
    bool is_token = xml_name_is(name, "NextContinuationToken"), is_encoding = xml_name_is(name, "EncodingType");
    bool is_truncated = xml_name_is(name, "IsTruncated");
    if (xml_name_is(name, "Contents")) {
        take_contents(page);
        return;
    }
    if (!is_token && !is_encoding && !is_truncated) {
        xml_skip(&page->xml);
        return;
    }
    if (!xml_take_text(&page->xml, &text))
        return;
    page->truncated |= is_truncated && strcasecmp(text, "true") == 0;
    page->encoded |= is_encoding && strcasecmp(text, "url") == 0;
    if (is_token && *text && !page->listing->next_token)
        page->listing->next_token = text;
    else
        free(text);
}

static void finish(struct page *page)
{
    struct s3_listing *listing = page->listing;
    for (size_t i = 0; i < listing->n_entries; i++) {
        struct s3_entry *entry = &listing->entries[i];
        if (page->encoded && !decode(entry->key))
            page->complaint = "a key that is not encoded as it says";
        if (!entry->etag)
            continue;
        char *quoted = *entry->etag ? s3_quote_etag(entry->etag) : NULL;
        free(entry->etag);
        entry->etag = quoted;
    }
    if (page->truncated && !listing->next_token)
        page->complaint = "there is more, but it does not say where";
    if (!page->truncated) {
        free(listing->next_token);
        listing->next_token = NULL;
    }
}

int s3_listing_parse(const void *bytes, size_t count, struct s3_listing *listing, struct error *error)
{
    struct page page = {.listing = listing};
    struct xml_name name;
    *listing = (struct s3_listing){0};
    xml_init(&page.xml, bytes, count);
    if (!xml_next(&page.xml, &name) || !xml_name_is(&name, "ListBucketResult"))
        page.complaint = "it is no ListBucketResult";
    while (!page.complaint && xml_next(&page.xml, &name))
        take_element(&page, &name);
    if (!page.complaint && !xml_end(&page.xml))
        page.complaint = page.xml.error ? page.xml.error : "it is cut off";
    if (!page.complaint)
        finish(&page);
    if (!page.complaint)
        return 0;
    s3_listing_clear(listing);
    return fail(error, ERROR_UNAVAILABLE, "BAD_LISTING", "the listing of the bucket cannot be used: %s", page.complaint);
}
