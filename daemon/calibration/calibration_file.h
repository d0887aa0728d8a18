/* calibration.json: what was learned per source device, kept over restarts.
 *
 *     {"version": 1, "devices": [{"device": 65024, "fresh_bytes_per_s": 14000000000,
 *      "cached": {"request_ps": 450000, "bytes_per_s": 12000000000, "samples": 7}, "uncached": {...}}]}
 * Whole numbers only. A file is replaced by rename, so a crash leaves the old one. Private to calibration.c. */
#ifndef EXECUTE_CALIBRATION_FILE_H
#define EXECUTE_CALIBRATION_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "plan/cost.h"

enum { CALIBRATION_MAX_DEVICES = 64 };

/* The constants that depend on the device; values outside these limits are neither learned nor believed. */
struct calibrated {
    uint64_t device_id;
    struct cost_class cached, uncached;
    double fresh_bytes_per_ns;
};

struct calibration_range {
    double least, most;
};
extern const struct calibration_range calibration_request_ns, calibration_bytes_per_ns;

/* Fills up to CALIBRATION_MAX_DEVICES devices. No file = none. On error (damaged, of another version) there are none. */
int calibration_file_read(const char *path, struct calibrated devices[CALIBRATION_MAX_DEVICES], size_t *n_devices,
                          struct error *error);
int calibration_file_write(const char *path, const struct calibrated *devices, size_t n_devices, struct error *error);

#endif
