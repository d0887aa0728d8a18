/* See kernel_text.h. */
#include "base/kernel_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

uint64_t kernel_text_sum(const char *path, const char *const *names)
{
    char line[256], name[64];
    uint64_t value, sum = 0;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%63s %" SCNu64, name, &value) != 2)
            continue;
        for (size_t i = 0; names[i]; i++)
            sum += strcmp(name, names[i]) == 0 ? value : 0;
    }
    if (file)
        fclose(file);
    return sum;
}

uint64_t kernel_text_number(const char *path)
{
    uint64_t value = UINT64_MAX;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%" SCNu64, &value) != 1)
        value = UINT64_MAX;
    if (file)
        fclose(file);
    return value;
}
