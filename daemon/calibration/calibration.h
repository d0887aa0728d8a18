/* What reading and copying cost on this host: built-in defaults, a copy measured once at start (a few ms), then learned
 * from the reports of real loads (exponentially weighted), per source device; kept in <state_dir>/calibration.json.
 * Loop thread only. */
#ifndef EXECUTE_CALIBRATION_H
#define EXECUTE_CALIBRATION_H

#include <stdint.h>

#include "base/error.h"
#include "execute/engine.h"
#include "plan/cost.h"

struct calibration;

/* state_dir NULL = not kept. A damaged file is ignored with a warning. */
struct calibration *calibration_create(const char *state_dir);
void calibration_destroy(struct calibration *calibration); /* writes what was learned */
struct cost_constants calibration_get(const struct calibration *calibration, uint64_t device_id);
/* For runs that ended well and had the engine to themselves: the time of others would count as the device's. */
void calibration_learn(struct calibration *calibration, uint64_t device_id, const struct run_report *report);
/* Calls fn for every known device. */
void calibration_each(const struct calibration *calibration,
                      void (*fn)(void *data, uint64_t device_id, const struct cost_constants *constants), void *data);

#endif
