/* See shared_block.h. */
#include "hosts/shared_block.h"

#include <string.h>

#include "base/digest.h"

/* Of the artifact's version, not of where it is read: the identity of a store's object is made of its name and its version;
 * that of a file on a network file system is the server's, so what differs from host to host is left out. */
static void digest_version(const struct source *source, const struct source_file *file, struct shared_file *shared)
{
    const struct source_identity *identity = &file->identity;
    unsigned char sum[DIGEST_BYTES];
    struct digest *digest = digest_create();
    digest_add_text(digest, "tensorcast shared file");
    digest_add_text(digest, file->name);
    digest_add_u64(digest, source->caps.reads_are_requests ? identity->device : 0);
    digest_add_u64(digest, identity->inode);
    digest_add_u64(digest, file->size_bytes);
    digest_add_u64(digest, identity->mtime_ns);
    digest_add_u64(digest, identity->ctime_ns);
    digest_finish(digest, sum);
    digest_hex(sum, (SHARED_ID_CHARS - 1) / 2, shared->id);
    memcpy(&shared->hash, sum, sizeof shared->hash);
}

/* Whether two files that look the same are one: a FUSE process may number its files by itself, and give those of an image all
 * one time. A time with a fraction comes from a clock. */
static bool tells_files_apart(const struct source *source, const struct source_identity *identity)
{
    const char *type = source->caps.filesystem_type;
    return (strcmp(type, "fuse") != 0 && strncmp(type, "0x", 2) != 0) || identity->ctime_ns % 1000000000 != 0;
}

bool shared_file_of(const struct source *source, size_t file, struct shared_file *shared, const char **reason)
{
    const struct source_file *of = &source->files[file];
    bool is_network = source->caps.filesystem == SOURCE_NETWORK;
    *reason = NULL;
    if (source->caps.reads_are_requests && of->changes_by != CHANGES_BY_VERSION)
        *reason = "the store gives no strong version of the file";
    else if (!source->caps.reads_are_requests && !is_network)
        *reason = "the file is on this host";
    else if (of->changes_by == CHANGES_RACY)
        *reason = "the file was changed just now";
    else if (is_network && !tells_files_apart(source, &of->identity))
        *reason = "the file system gives it a time of change in whole seconds, as files of other hosts may have";
    else if (source->caps.reads_are_requests && strstr(source->reference, "?..."))
        *reason = "the reference has a query, which may be a secret and is not sent to other hosts";
    if (*reason)
        return false;
    digest_version(source, of, shared);
    return true;
}

static uint64_t scramble(uint64_t x) /* the finalizer of SplitMix64 (Steele, Lea and Flood 2014) */
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t shared_host_hash(const char *name)
{
    unsigned char sum[DIGEST_BYTES];
    uint64_t hash;
    struct digest *digest = digest_create();
    digest_add_text(digest, name);
    digest_finish(digest, sum);
    memcpy(&hash, sum, sizeof hash);
    return hash;
}

uint64_t shared_score(const struct shared_file *file, uint64_t block, uint64_t host_hash)
{
    return scramble(scramble(file->hash + block * 0x9e3779b97f4a7c15u) ^ host_hash);
}
