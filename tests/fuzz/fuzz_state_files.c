/* A file of the state directory as input; its first byte says which: a header of the header store, or calibration.json. Both
 * may be damaged or forged. What is believed of them obeys the limits. Reaches header_store.c and calibration.c. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/metadata.h"
#include "execute/calibration.h"
#include "resolve/header_store.h"
#include "resolve/safetensors.h"

static char folder[] = "/tmp/fuzz-state-XXXXXX", header_path[512], calibration_path[512];
static const struct source_identity identity = {
    .device = 1, .inode = 2, .size_bytes = 1 << 20, .mtime_ns = 3, .ctime_ns = 4};

static void check(int truth)
{
    if (!truth)
        abort();
}

static void remove_folder(void)
{
    char headers[512];
    unlink(header_path);
    unlink(calibration_path);
    snprintf(headers, sizeof headers, "%s/headers", folder);
    rmdir(headers);
    rmdir(folder);
}

/* A store with one document; its file's name is the store's business. */
static struct header_store *open_store(void)
{
    struct error error;
    char headers[512];
    check(mkdtemp(folder) != NULL);
    struct header_store *store = header_store_open(folder, &error);
    check(store != NULL);
    header_store_add(store, HEADER_KIND_SAFETENSORS, &identity, "{}", 2);
    snprintf(headers, sizeof headers, "%s/headers", folder);
    DIR *list = opendir(headers);
    check(list != NULL);
    for (struct dirent *entry; (entry = readdir(list));)
        if (entry->d_name[0] != '.')
            snprintf(header_path, sizeof header_path, "%s/%s", headers, entry->d_name);
    closedir(list);
    check(header_path[0] != '\0');
    snprintf(calibration_path, sizeof calibration_path, "%s/calibration.json", folder);
    atexit(remove_folder);
    return store;
}

static void put(const char *path, const uint8_t *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    check(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static void try_header(struct header_store *store, const uint8_t *data, size_t size)
{
    char *json = NULL;
    uint64_t n_bytes;
    struct error error;
    put(header_path, data, size);
    if (!header_store_find(store, HEADER_KIND_SAFETENSORS, &identity, &json, &n_bytes))
        return;
    check(n_bytes <= size);
    part_header_unref(safetensors_parse(json, n_bytes, identity.size_bytes, &error));
    metadata_free(json);
}

static void check_class(const struct cost_class *class)
{
    check(class->request_ns >= calibration_request_ns.least && class->request_ns <= calibration_request_ns.most);
    check(class->bytes_per_ns >= calibration_bytes_per_ns.least && class->bytes_per_ns <= calibration_bytes_per_ns.most);
}

static void try_calibration(const uint8_t *data, size_t size)
{
    struct calibrated devices[CALIBRATION_MAX_DEVICES];
    struct error error;
    size_t n_devices = 0;
    put(calibration_path, data, size);
    if (calibration_file_read(calibration_path, devices, &n_devices, &error) != 0) {
        check(n_devices == 0 && error.message[0]);
        return;
    }
    check(n_devices <= CALIBRATION_MAX_DEVICES);
    for (size_t i = 0; i < n_devices; i++) {
        check_class(&devices[i].cached);
        check_class(&devices[i].uncached);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct header_store *store;
    if (!store)
        store = open_store();
    if (size == 0)
        return 0;
    if (data[0] % 2)
        try_calibration(data + 1, size - 1);
    else
        try_header(store, data + 1, size - 1);
    return 0;
}
