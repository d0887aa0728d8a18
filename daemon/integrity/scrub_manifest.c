/* A manifest's text: the same bytes for the same files, whoever writes it and whenever. docs/manifest.md has the format. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "integrity/scrub.h"

enum { CRC_CHARS = 8 };

static void write_checksum(struct json_writer *json, const struct checksum *checksum)
{
    char hex[2 * CHECKSUM_MAX_BYTES + 1];
    digest_hex(checksum->value, checksum_bytes(checksum->kind), hex);
    json_put_text(json, checksum_kind_name(checksum->kind), hex);
}

/* Of those that are in the file as a whole; of several copies the first. */
static void write_tensors(struct json_writer *json, const struct scrub *scrub, size_t file)
{
    const struct artifact *artifact = scrub->artifact;
    size_t end = artifact_find_piece(artifact, (uint32_t)file + 1, 0);
    char hex[CRC_CHARS + 1];
    json_put_open(json, "tensors", '{');
    for (size_t i = artifact_find_piece(artifact, (uint32_t)file, 0); i < end; i++) {
        const struct tensor_record *tensor = artifact_stored(artifact, artifact->pieces[i].tensor);
        if (artifact->pieces[i].box || artifact_piece(artifact, tensor, 0) != &artifact->pieces[i])
            continue;
        snprintf(hex, sizeof hex, "%08x", scrub->piece_crcs[i]);
        json_write_key_bytes(json, tensor->name, tensor->name_length);
        json_write_text(json, hex);
    }
    json_write_close(json, '}');
}

char *scrub_manifest_json(const struct scrub *scrub, struct error *error)
{
    bool lacks_memory = false;
    struct json_writer json = {.can_fail = true};
    char hex[CRC_CHARS + 1];
    json_write_open(&json, '{');
    json_put_text(&json, "format", MANIFEST_FORMAT);
    json_put_u64(&json, "version", MANIFEST_VERSION);
    json_put_u64(&json, "block_bytes", scrub->block_bytes);
    json_put_open(&json, "files", '[');
    for (size_t i = 0; i < scrub->n_files; i++) {
        const struct scrub_file *file = &scrub->files[i];
        json_write_open(&json, '{');
        json_put_text(&json, "name", file->part->name);
        json_put_u64(&json, "bytes", file->part->size_bytes);
        if (file->part->version)
            json_put_text(&json, "version", file->part->version);
        write_checksum(&json, &file->found[CHECKSUM_SHA256]);
        write_checksum(&json, &file->found[CHECKSUM_CRC32C]);
        snprintf(hex, sizeof hex, "%08x", (unsigned)artifact_prefix_crc(scrub->artifact, i, CHECKSUM_CRC32C));
        json_put_text(&json, "header_crc32c", hex);
        char *digits = memory_try(file->n_blocks * CRC_CHARS + 1);
        for (uint64_t block = 0; digits && block < file->n_blocks; block++)
            snprintf(digits + block * CRC_CHARS, CRC_CHARS + 1, "%08x", file->blocks[block]);
        lacks_memory = lacks_memory || !digits;
        json_put_text(&json, "blocks", digits ? digits : "");
        free(digits);
        write_tensors(&json, scrub, i);
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    if (!lacks_memory && !json.has_failed)
        return json.text;
    free(json.text);
    metadata_fail_memory(json.length, error);
    return NULL;
}
