/* Decides what can be compared with what, file by file, and what that says of the whole load; see verify.h. */
#include "integrity/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "integrity/verify_private.h"
#include "observe/log.h"

enum { MAX_THREADS = 16 };

const char *verified_name(enum verified verified)
{
    static const char *const names[] = {"off", "unverified", "partial", "verified"};
    return names[verified];
}

/* --- what the ways to compare have in common --- */

const struct checksum *verify_expected(struct verify_file *file, enum checksum_kind kind, bool *from_manifest)
{
    *from_manifest = false;
    for (size_t i = 0; i < CHECKSUM_PER_FILE; i++)
        if (file->part->checksums[i].kind == kind)
            return &file->part->checksums[i];
    *from_manifest = true;
    if (file->manifest && kind == CHECKSUM_CRC32C && file->manifest->crc32c.kind)
        return &file->manifest->crc32c;
    if (file->manifest && kind == CHECKSUM_SHA256 && file->manifest->sha256.kind)
        return &file->manifest->sha256;
    return NULL;
}

void verify_note(struct verify_file *file, enum checksum_kind kind, bool from_manifest, uint64_t bytes)
{
    *(from_manifest ? &file->by_manifest : &file->by) |= 1u << kind;
    file->verified_bytes += bytes;
}

bool verify_is_cancelled(struct verify_file *file)
{
    if (!cancel_is_set(file->options->cancel))
        return false;
    fail(&file->error, ERROR_CANCELLED, "LOAD_CANCELLED", "the load was cancelled");
    return true;
}

/* --- one file --- */

static int fail_manifest(const struct source_file *part, const char *complaint, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    return fail(error, ERROR_DATA_LOSS, "MANIFEST_DISAGREES",
                "%s %s: the file is damaged or another one, or the manifest is an old one; make a new one with `tensorcast "
                "manifest` or remove it",
                text_escape(part->name, strlen(part->name), name), complaint);
}

int verify_check_manifest(const struct source_file *part, const struct manifest_file *manifest, struct error *error)
{
    char complaint[2 * CHECKSUM_TEXT_CHARS + 64], told[CHECKSUM_TEXT_CHARS], listed[CHECKSUM_TEXT_CHARS];
    if (manifest && manifest->bytes != part->size_bytes) {
        snprintf(complaint, sizeof complaint, "has %" PRIu64 " bytes, by its manifest %" PRIu64, part->size_bytes,
                 manifest->bytes);
        return fail_manifest(part, complaint, error);
    }
    for (size_t i = 0; manifest && i < CHECKSUM_PER_FILE; i++) {
        const struct checksum *given = &part->checksums[i];
        const struct checksum *known = given->kind == CHECKSUM_SHA256 ? &manifest->sha256 : &manifest->crc32c;
        if (!given->kind || known->kind != given->kind || checksum_equal(given, known))
            continue;
        snprintf(complaint, sizeof complaint, "has %s in its store, by its manifest %s", checksum_print(given, told),
                 checksum_print(known, listed));
        return fail_manifest(part, complaint, error);
    }
    return 0;
}

static int verify_file(void *files, size_t i, struct error *error)
{
    struct verify_file *file = (struct verify_file *)files + i;
    static enum check (*const ways[])(struct verify_file *) = {verify_ledger, verify_whole_file, verify_by_manifest};
    enum check result = verify_check_manifest(file->part, file->manifest, &file->error) ? CHECK_FAILED : CHECK_CANNOT;
    for (size_t way = 0; way < sizeof ways / sizeof *ways && result == CHECK_CANNOT; way++)
        if (!verify_is_cancelled(file))
            result = ways[way](file);
    if (result == CHECK_DONE && file->verified_bytes == file->wanted_bytes)
        file->reason = NULL;
    else if (!file->reason)
        file->reason = "the source gives no checksum and there is no manifest";
    *error = file->error;
    return file->error.code ? -1 : 0;
}

/* --- all files, a few at a time --- */

static size_t collect_files(const struct verify_options *options, struct verify_file *files)
{
    const struct mapping *mapping = options->mapping;
    const struct artifact *artifact = mapping->artifact;
    size_t n_files = 0;
    for (uint32_t f = 0; f < artifact->source->n_files; f++) {
        struct verify_file file = {.options = options, .part = &artifact->source->files[f], .file = f};
        struct mapping_reads reads = mapping_reads(mapping, f);
        for (size_t i = 0; i < reads.n; i++)
            file.wanted_bytes += transfer_bytes(&reads.list[i]);
        if (file.wanted_bytes == 0)
            continue;
        file.prefix_bytes = artifact_prefix_bytes(artifact, f);
        if (artifact->manifest)
            file.manifest = manifest_find_file(artifact->manifest, file.part->name);
        if (artifact->manifest && !file.manifest)
            file.reason = "the manifest does not have this file";
        files[n_files++] = file;
    }
    return n_files;
}

/* --- what it adds up to --- */

static void print_reason(const struct verify_file *files, size_t n_files, char reason[VERDICT_REASON_CHARS])
{
    char name[TEXT_NAME_CHARS];
    const struct verify_file *first = NULL;
    size_t n_others = 0;
    for (size_t i = 0; i < n_files; i++) {
        if (files[i].reason && first)
            n_others++;
        else if (files[i].reason)
            first = &files[i];
    }
    if (!first)
        return;
    int used = snprintf(reason, VERDICT_REASON_CHARS, "%s: %s",
                        text_escape(first->part->name, strlen(first->part->name), name), first->reason);
    if (n_others && used < VERDICT_REASON_CHARS)
        snprintf(reason + used, (size_t)(VERDICT_REASON_CHARS - used), "; and %zu more file%s", n_others,
                 n_others == 1 ? "" : "s");
}

/* Returns what there was to verify: distinct bytes of the source. */
static uint64_t judge_parts(const struct verify_options *options, const struct verify_file *files, size_t n_files,
                            struct verdict *verdict)
{
    const struct scales *scales = &options->mapping->scales;
    unsigned by = 0, by_manifest = scales->verified_bytes ? 1u << CHECKSUM_CRC32C : 0;
    uint64_t wanted = scales->bytes;
    verdict->bytes = scales->verified_bytes;
    for (size_t i = 0; i < n_files; i++) {
        wanted += files[i].wanted_bytes;
        verdict->bytes += files[i].verified_bytes;
        verdict->healed += files[i].healed;
        by |= files[i].by;
        by_manifest |= files[i].by_manifest;
    }
    verdict->status = verdict->bytes == wanted ? VERIFIED_ALL : verdict->bytes ? VERIFIED_PARTLY : VERIFIED_NOTHING;
    checksum_print_kinds(by, "", verdict->by, sizeof verdict->by);
    checksum_print_kinds(by_manifest, "manifest ", verdict->by, sizeof verdict->by);
    print_reason(files, n_files, verdict->reason);
    if (scales->verified_bytes < scales->bytes && !verdict->reason[0])
        snprintf(verdict->reason, sizeof verdict->reason,
                 "scales of quantized tensors are read apart, where only a manifest vouches for them");
    return wanted;
}

static int verify_all(const struct verify_options *options, struct verdict *verdict, struct error *error)
{
    const struct artifact *artifact = options->mapping->artifact;
    struct verify_file *files = memory_alloc_array(artifact->source->n_files, sizeof *files);
    size_t n_files = collect_files(options, files);
    size_t cores = (size_t)sysconf(_SC_NPROCESSORS_ONLN), n_threads = cores < MAX_THREADS ? cores : MAX_THREADS;
    int result = parallel_run(n_files, n_threads, verify_file, files, error);
    for (const struct verify_file *file = files; file < files + n_files; file++)
        if (options->load_id && file->healed && !file->error.code)
            log_at_of(LOG_WARN, "verify_healed", options->uid, LOG_TEXT("load_id", options->load_id),
                      LOG_TEXT("artifact", artifact->reference), LOG_TEXT("file", file->part->name),
                      LOG_U64("ranges", file->healed), LOG_U64("first_byte", file->bad_offset),
                      LOG_U64("end", file->bad_end));
    uint64_t wanted_bytes = judge_parts(options, files, n_files, verdict);
    free(files);
    if (result == 0 && options->policy == VERIFY_REQUIRED && verdict->status != VERIFIED_ALL)
        result = fail(error, ERROR_FAILED_PRECONDITION, "CANNOT_VERIFY",
                      "%" PRIu64 " of %" PRIu64 " bytes can be verified, and sources.verify is required: %s; load whole "
                      "files, or have a manifest made with `tensorcast manifest`",
                      verdict->bytes, wanted_bytes, verdict->reason);
    return result;
}

int verify_load(const struct verify_options *options, struct verdict *verdict, struct error *error)
{
    const struct artifact *artifact = options->mapping->artifact;
    *verdict = (struct verdict){.status = VERIFIED_OFF};
    if (options->policy == VERIFY_NONE) {
        snprintf(verdict->reason, sizeof verdict->reason, "sources.verify is none");
        return 0;
    }
    if (artifact->manifest_problem.code) {
        *error = artifact->manifest_problem;
        return -1;
    }
    return verify_all(options, verdict, error);
}
