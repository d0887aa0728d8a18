/* See rank_needs.h. */
#include "load/rank_needs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "hosts/shared_block.h"
#include "plan/rows.h"

enum { PIECES = SHARED_BLOCK_BYTES / SHARED_PIECE_BYTES, ALL_PIECES = (1 << PIECES) - 1, MAX_DIGITS = 9 };
_Static_assert(PIECES == 16, "a bit a piece");

static uint64_t blocks_of(const struct source_file *file)
{
    return file->size_bytes / SHARED_BLOCK_BYTES + (file->size_bytes % SHARED_BLOCK_BYTES > 0);
}

bool rank_needs_init(struct rank_needs *needs, const struct source *source)
{
    uint64_t n_blocks = 0;
    *needs = (struct rank_needs){.n_files = source->n_files};
    needs->first = memory_try((source->n_files + 1) * sizeof *needs->first);
    for (size_t i = 0; needs->first && i < source->n_files && n_blocks <= RANK_NEEDS_MAX_BLOCKS; i++) {
        n_blocks += blocks_of(&source->files[i]);
        needs->first[i + 1] = n_blocks;
    }
    if (!needs->first || n_blocks == 0 || n_blocks > RANK_NEEDS_MAX_BLOCKS)
        return false;
    needs->n_blocks = n_blocks;
    needs->pieces = memory_try(n_blocks * sizeof *needs->pieces);
    return needs->pieces;
}

void rank_needs_fini(struct rank_needs *needs)
{
    free(needs->first);
    free(needs->pieces);
}

static void add_pieces(struct rank_needs *needs, uint64_t at, uint64_t end)
{
    for (uint64_t block; at < end; at = (block + 1) * PIECES) {
        block = at / PIECES;
        uint64_t from = at % PIECES, to = end - block * PIECES;
        needs->pieces[block] |= (uint16_t)((1u << (to < PIECES ? to : PIECES)) - (1u << from));
    }
}

static void add_rows(struct rank_needs *needs, size_t file, const struct rows *rows, uint64_t file_bytes)
{
    for (uint64_t at = rows->offset, end; at != UINT64_MAX; at = rows_next(rows, end)) {
        uint64_t row = (at - rows->offset) / rows->stride, row_end = rows->offset + row * rows->stride + rows->bytes;
        uint64_t piece = at / SHARED_PIECE_BYTES, last = (row_end - 1) / SHARED_PIECE_BYTES;
        end = (last + 1) * SHARED_PIECE_BYTES;
        if (end >= file_bytes)
            last = (needs->first[file + 1] - needs->first[file]) * PIECES - 1;
        add_pieces(needs, needs->first[file] * PIECES + piece, needs->first[file] * PIECES + last + 1);
    }
}

void rank_needs_add(struct rank_needs *needs, const struct mapping *mapping)
{
    const struct source *source = mapping->artifact->source;
    for (size_t file = 0; file < needs->n_files && file < source->n_files; file++) {
        if (blocks_of(&source->files[file]) != needs->first[file + 1] - needs->first[file])
            continue; /* another version of it */
        struct mapping_reads reads = mapping_reads(mapping, file);
        for (size_t i = 0; i < reads.n; i++) {
            struct rows rows = rows_of_transfer(&reads.list[i]);
            add_rows(needs, file, &rows, source->files[file].size_bytes);
        }
    }
}

char *rank_needs_write(const struct rank_needs *needs)
{
    char *text = memory_alloc(RANK_NEEDS_MAX_CHARS);
    uint64_t run = 0, n = needs->n_blocks * (uint64_t)PIECES;
    size_t used = 0;
    bool is_needed = false;
    for (uint64_t at = 0, length; at <= n && used < RANK_NEEDS_MAX_CHARS; at += length, run += length) {
        uint16_t pieces = at < n ? needs->pieces[at / PIECES] : 0;
        bool is_whole = at % PIECES == 0 && pieces == (is_needed ? ALL_PIECES : 0);
        length = is_whole ? PIECES : 1;
        if (at == n ? !is_needed : is_whole || (pieces >> at % PIECES & 1) == is_needed)
            continue;
        used += (size_t)snprintf(text + used, RANK_NEEDS_MAX_CHARS - used, "%s%" PRIu64, used ? "," : "", run);
        is_needed = !is_needed;
        run = 0;
    }
    if (used > 0 && used < RANK_NEEDS_MAX_CHARS)
        return text;
    free(text);
    return NULL;
}

bool rank_needs_is_good(const char *text)
{
    size_t n = 0, digits;
    if (strlen(text) >= RANK_NEEDS_MAX_CHARS)
        return false;
    for (const char *at = text;; at += digits + 1, n++) {
        digits = strspn(at, "0123456789");
        bool is_zero = digits == 1 && *at == '0' && n == 0;
        if (digits == 0 || digits > MAX_DIGITS || (*at == '0' && !is_zero))
            return false;
        if (at[digits] == '\0')
            return n % 2 == 1;
        if (at[digits] != ',')
            return false;
    }
}

void rank_needs_add_text(struct rank_needs *needs, const char *text)
{
    uint64_t at = 0, n = needs->n_blocks * (uint64_t)PIECES;
    bool is_needed = false;
    for (char *rest; *text; text = *rest ? rest + 1 : rest, is_needed = !is_needed) {
        uint64_t end = at + strtoull(text, &rest, 10);
        if (is_needed)
            add_pieces(needs, at < n ? at : n, end < n ? end : n);
        at = end;
    }
}
