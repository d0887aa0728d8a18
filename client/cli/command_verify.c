/* The rules of the format are checked wherever an artifact is resolved; verify asks that no cached header be believed, then
 * has every byte read for which the store gives a checksum or a manifest has one. Where there is none, as for most
 * checkpoints on a disk, the data has nothing to be compared with and is not read. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "failure.h"

/* The first way that was used; files of one artifact are mostly verified alike. */
static void print_verdict(const struct tc_verification *checked, struct json_writer *json)
{
    const char *by = "", *reason = "";
    uint64_t bytes = 0, n_verified = 0;
    size_t n_files = tc_verification_n_files(checked);
    for (size_t i = 0; i < n_files; i++) {
        struct tc_verified_file file;
        tc_verification_file(checked, i, &file);
        bool is_verified = strcmp(file.status, "verified") == 0;
        by = is_verified && !by[0] ? file.by : by;
        bytes += is_verified ? file.bytes : 0;
        n_verified += is_verified;
        reason = file.damage[0]               ? file.damage
                 : !is_verified && !reason[0] ? "the source gives no checksum and there is no manifest"
                                              : reason;
    }
    json_put_open(json, "verified", '{');
    json_put_text(json, "status", n_verified == n_files ? "verified" : n_verified ? "partial" : "unverified");
    json_put_text(json, "by", by);
    json_put_u64(json, "bytes", bytes);
    json_put_text(json, "reason", reason);
    json_write_close(json, '}');
}

/* damage: what the command fails with; NULL = nothing is wrong. */
static void print_json(const struct catalog *catalog, const struct tc_verification *checked, const struct error *damage)
{
    struct json_writer json = {0};
    size_t n_files = tc_verification_n_files(checked);
    json_write_open(&json, '{');
    catalog_json_head(catalog, &json);
    json_put_u64(&json, "tensors", catalog->n_tensors);
    json_put_u64(&json, "total_bytes", catalog->told->total_bytes);
    print_verdict(checked, &json);
    json_put_open(&json, "checked", '[');
    for (size_t i = 0; i < n_files; i++) {
        struct tc_verified_file file;
        tc_verification_file(checked, i, &file);
        json_write_open(&json, '{');
        json_put_text(&json, "name", file.name);
        json_put_text(&json, "status", file.status);
        json_put_text(&json, "by", file.by);
        json_put_text(&json, "damage", file.damage);
        json_put_bool(&json, "healed", file.healed);
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    if (damage)
        failure_put(&json, damage);
    json_write_close(&json, '}');
    puts(json.text);
    free(json.text);
}

/* The last line is what people read: never better news than the lines above it. */
static void print_text(const struct catalog *catalog, const struct tc_verification *checked)
{
    size_t n_damaged = 0, n_verified = 0, n_files = tc_verification_n_files(checked);
    const char *by = "";
    for (size_t i = 0; i < n_files; i++) {
        struct tc_verified_file file;
        tc_verification_file(checked, i, &file);
        if (file.damage[0])
            printf("BAD  %s\n", file.damage); /* begins with its name */
        else
            printf("ok  %s  %s  %s%s\n", text_show(file.name), text_show_amount(file.bytes),
                   file.by[0] ? file.by : "header only, there is no checksum", file.healed ? "  (came wrong at first)" : "");
        n_damaged += file.damage[0] != '\0';
        if (strcmp(file.status, "verified") == 0 && n_verified++ == 0)
            by = file.by;
    }
    printf("%s: ", text_show(catalog->told->artifact));
    if (n_damaged) {
        printf("%zu of %zu file%s %s damaged\n", n_damaged, n_files, text_plural(n_files), n_damaged == 1 ? "is" : "are");
        return;
    }
    printf("%zu file%s, %zu tensor%s, every header is valid and agrees with its file, ", catalog->told->n_files,
           text_plural(catalog->told->n_files), catalog->n_tensors, text_plural(catalog->n_tensors));
    if (n_verified == n_files && n_verified > 0)
        printf("every byte with its checksum (%s)\n", by);
    else if (n_verified > 0)
        printf("every byte of %zu of the files with its checksum (%s)\n", n_verified, by);
    else
        printf("no byte was compared: there is no checksum\n");
}

int command_verify(struct backend *backend, struct error *error)
{
    struct catalog *catalog = backend_resolve(backend, TC_RESOLVE_FRESH, error);
    struct tc_verification *checked = catalog ? backend_verify(backend, false, error) : NULL;
    int status = checked ? backend_fail_damage(checked, error) : -1;
    if (checked && backend->args->json)
        print_json(catalog, checked, status ? error : NULL);
    else if (checked)
        print_text(catalog, checked);
    backend->has_told_failure = checked && status;
    tc_verification_release(checked);
    catalog_destroy(catalog);
    return status;
}
