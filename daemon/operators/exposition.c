#include "operators/exposition.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

void exposition_begin(struct exposition *exposition, bool is_openmetrics)
{
    *exposition = (struct exposition){.is_openmetrics = is_openmetrics};
    exposition->out = memory_stream(&exposition->text, &exposition->length);
}

/* What is no UTF-8 would cost the whole scrape. */
static void print_escaped(FILE *out, const char *text, bool escapes_quotes)
{
    size_t length = strlen(text), n;
    for (size_t at = 0; at < length; at += n) {
        n = utf8_sequence(text + at, length - at);
        if (text[at] == '\\')
            fputs("\\\\", out);
        else if (text[at] == '\n')
            fputs("\\n", out);
        else if (text[at] == '"' && escapes_quotes)
            fputs("\\\"", out);
        else if (n)
            fwrite(text + at, 1, n, out);
        else
            fputs("\xef\xbf\xbd", out); /* U+FFFD */
        n = n ? n : 1;
    }
}

void exposition_family(struct exposition *exposition, const char *name, enum exposition_type type, const char *help)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    const char *suffix = type == EXPOSITION_COUNTER && !exposition->is_openmetrics ? "_total" : "";
    exposition->type = type;
    fprintf(exposition->out, "# HELP %s%s ", name, suffix);
    print_escaped(exposition->out, help, exposition->is_openmetrics);
    fprintf(exposition->out, "\n# TYPE %s%s %s\n", name, suffix, types[type]);
}

/* le: of a bucket, NULL elsewhere. */
static void print_name(FILE *out, const char *name, const char *suffix, const struct exposition_label *labels,
                       const char *le)
{
    const char *gap = "{";
    fprintf(out, "%s%s", name, suffix);
    for (; labels && labels->key; labels++, gap = ",") {
        fprintf(out, "%s%s=\"", gap, labels->key);
        print_escaped(out, labels->value, true);
        fputc('"', out);
    }
    if (le)
        fprintf(out, "%sle=\"%s\"", gap, le);
    fputs(le || *gap == ',' ? "} " : " ", out);
}

void exposition_u64(struct exposition *exposition, const char *name, uint64_t value, const struct exposition_label *labels)
{
    print_name(exposition->out, name, exposition->type == EXPOSITION_COUNTER ? "_total" : "", labels, NULL);
    fprintf(exposition->out, "%" PRIu64 "\n", value);
}

void exposition_real(struct exposition *exposition, const char *name, double value, const struct exposition_label *labels)
{
    print_name(exposition->out, name, exposition->type == EXPOSITION_COUNTER ? "_total" : "", labels, NULL);
    fprintf(exposition->out, "%.15g\n", isfinite(value) ? value : 0);
}

void exposition_histogram(struct exposition *exposition, const char *name, const struct exposition_histogram *histogram,
                          const struct exposition_label *labels)
{
    uint64_t count = 0;
    char bound[32];
    for (size_t i = 0; i <= histogram->n_bounds; i++) {
        count += histogram->numbers[i];
        if (i == histogram->n_bounds)
            snprintf(bound, sizeof bound, "+Inf");
        else /* OpenMetrics wants floats */
            snprintf(bound, sizeof bound, fmod(histogram->bounds[i], 1) == 0 ? "%.1f" : "%.15g", histogram->bounds[i]);
        print_name(exposition->out, name, "_bucket", labels, bound);
        fprintf(exposition->out, "%" PRIu64 "\n", count);
    }
    print_name(exposition->out, name, "_sum", labels, NULL);
    fprintf(exposition->out, "%.15g\n", histogram->sum);
    print_name(exposition->out, name, "_count", labels, NULL);
    fprintf(exposition->out, "%" PRIu64 "\n", count);
}

char *exposition_end(struct exposition *exposition, size_t *length)
{
    if (exposition->is_openmetrics)
        fputs("# EOF\n", exposition->out);
    fclose(exposition->out);
    *length = exposition->length;
    return exposition->text;
}
