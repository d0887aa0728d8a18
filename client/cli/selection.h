/* --tensor, --slice and --tp-* against what an artifact holds: globs are matched and dimensions divided here, so that a
 * request only ever holds names and bounds. Pure; memory is the selection's. */
#ifndef CLI_SELECTION_H
#define CLI_SELECTION_H

#include <stdbool.h>

#include "args.h"
#include "base/arena.h"
#include "base/error.h"
#include "catalog.h"

struct selection {
    bool whole; /* everything, without naming it */
    struct tc_view view;
    bool has_placement; /* the view's file says it */
    enum tc_placement placement;
    struct arena arena;
};

/* Fills a zeroed selection. A glob that matches nothing is NOT_FOUND and named; a pattern that is an exact name counts as a
 * match of itself; no tensor is selected twice; --slice wins over the tensor-parallel rules. model: what the artifact's
 * config.json says. */
int selection_from_catalog(const struct view_args *options, const struct catalog *catalog, const struct tp_model *model,
                           struct selection *selection, struct error *error);

/* NOT_FOUND: the absent tensor of that index is in a file that is not there. Returns -1. */
int selection_fail_absent(const struct catalog *catalog, size_t index, struct error *error);

/* Leaves of the catalog's tensors those that --tensor names, in artifact order; all when there is none. */
int selection_filter_catalog(const struct view_args *options, struct catalog *catalog, struct error *error);

/* For a view file (see view_file.h): "slices": [] has one entry per dimension only if there are none. Unknown names are left
 * to what serves the request. */
int selection_check_empty_slices(const struct tc_view *view, const struct catalog *catalog, struct error *error);

const struct tc_view *selection_view(const struct selection *selection); /* NULL = everything */
void selection_fini(struct selection *selection);

/* View options -> the view that is asked for, reading the view file and asking for the artifact where that is needed. Fills
 * backend->selection. */
struct backend;
int selection_build(struct backend *backend, struct error *error);

#endif
