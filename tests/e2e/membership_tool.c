/* Runs the membership plugin: one event a line on standard output, `set KEY VALUE`, `unset KEY` and `close` on standard input.
 * usage: membership_tool PLUGIN PREFIX LEASE_S USERNAME PASSWORD CA CERTIFICATE KEY ENDPOINT...   (the PEM ones are files or "") */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hosts/membership.h"

static void say_state(void *data, bool is_connected, const char *reason)
{
    (void)data;
    printf("state %s %s\n", is_connected ? "connected" : "away", reason);
    fflush(stdout);
}
static void say_begin(void *data)
{
    (void)data;
    puts("begin");
}
static void say_end(void *data)
{
    (void)data;
    puts("end");
    fflush(stdout);
}
static void say_change(void *data, const char *key, const char *value)
{
    (void)data;
    printf("%s %s %s\n", value ? "put" : "delete", key, value ? value : "");
    fflush(stdout);
}

static char *read_file(const char *path)
{
    static char texts[3][1 << 16];
    static int n;
    FILE *file = *path ? fopen(path, "r") : NULL;
    if (*path && !file)
        exit(2);
    if (file) {
        texts[n][fread(texts[n], 1, sizeof texts[n] - 1, file)] = '\0';
        fclose(file);
    }
    return texts[n++];
}

int main(int argc, char **argv)
{
    static const struct membership_events events = {say_state, say_begin, say_end, say_change};
    struct error error;
    char line[8192];
    void *library = argc < 10 ? NULL : dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    const struct membership_plugin *plugin = library ? dlsym(library, MEMBERSHIP_SYMBOL) : NULL;
    const struct membership_plugin own = {MEMBERSHIP_HEADER};
    if (!plugin || plugin->abi != own.abi || plugin->settings_bytes != own.settings_bytes)
        return fprintf(stderr, "no plugin: %s\n", argc < 10 ? "usage" : dlerror()), 2;
    struct membership_settings settings = {.endpoints = (const char *const *)argv + 9,
                                           .n_endpoints = (size_t)argc - 9,
                                           .prefix = argv[2],
                                           .username = argv[4],
                                           .password = argv[5],
                                           .ca = read_file(argv[6]),
                                           .certificate = read_file(argv[7]),
                                           .key = read_file(argv[8]),
                                           .lease_s = (uint32_t)atoi(argv[3]),
                                           .events = &events};
    struct membership *membership = plugin->open(&settings, &error);
    if (!membership)
        return fprintf(stderr, "%s\n", error.message), 1;
    while (fgets(line, sizeof line, stdin) && strcmp(line, "close\n") != 0) {
        char *verb = strtok(line, " \n"), *key = strtok(NULL, " \n"), *value = strtok(NULL, "\n");
        if (verb && key && value)
            plugin->set(membership, key, value);
        else if (verb && key)
            plugin->unset(membership, key);
    }
    plugin->close(membership);
    puts("closed");
    return 0;
}
