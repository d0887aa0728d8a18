/* Pieces without copies say which files are touched; then each of the others is taken in file order, and what it takes
 * touches its file for those behind it. */
#include "resolve/copy_choice.h"

#include "base/metadata.h"

enum { NOT_WANTED, WANTED, TAKEN };

int copy_choice_init(struct copy_choice *choice, const struct artifact *artifact, struct error *error)
{
    *choice = (struct copy_choice){.artifact = artifact};
    if (!artifact->copies)
        return 0;
    choice->states = metadata_array(artifact->n_pieces, sizeof *choice->states, error);
    choice->is_touched = metadata_array(artifact->source->n_files, sizeof *choice->is_touched, error);
    if (choice->states && choice->is_touched)
        return 0;
    copy_choice_fini(choice);
    return -1;
}

void copy_choice_fini(struct copy_choice *choice)
{
    metadata_free(choice->states);
    metadata_free(choice->is_touched);
    *choice = (struct copy_choice){0};
}

static uint32_t index_of(const struct copy_choice *choice, const struct tensor_piece *piece)
{
    return (uint32_t)(piece - choice->artifact->pieces);
}

void copy_choice_want(struct copy_choice *choice, const struct tensor_piece *piece)
{
    if (!choice->states)
        return;
    uint32_t index = index_of(choice, piece);
    bool is_alone = choice->artifact->copies[index] == index;
    choice->states[index] = is_alone ? TAKEN : WANTED;
    choice->is_touched[piece->file] |= is_alone;
}

/* The first in a file that is touched; the wanted one is the first of all. */
static uint32_t choose(const struct copy_choice *choice, uint32_t wanted)
{
    const struct artifact *artifact = choice->artifact;
    uint32_t piece = wanted;
    do {
        if (choice->is_touched[artifact->pieces[piece].file])
            return piece;
        piece = artifact->copies[piece];
    } while (piece != wanted);
    return wanted;
}

void copy_choice_settle(struct copy_choice *choice)
{
    for (size_t i = 0; choice->states && i < choice->artifact->n_pieces; i++) {
        if (choice->states[i] != WANTED)
            continue;
        uint32_t piece = choose(choice, (uint32_t)i);
        choice->states[i] = NOT_WANTED;
        choice->states[piece] = TAKEN;
        choice->is_touched[choice->artifact->pieces[piece].file] = true;
    }
}

bool copy_choice_takes(const struct copy_choice *choice, size_t piece)
{
    return !choice->states || choice->states[piece] == TAKEN;
}

const struct tensor_piece *copy_choice_find(const struct copy_choice *choice, const struct tensor_piece *piece)
{
    const struct artifact *artifact = choice->artifact;
    if (!choice->states)
        return piece;
    uint32_t first = index_of(choice, piece), at = first;
    while (choice->states[at] != TAKEN && artifact->copies[at] != first)
        at = artifact->copies[at];
    return &artifact->pieces[at];
}
