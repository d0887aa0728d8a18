/* A table is a run of lines that begin with "  " or "> "; its first line has the heads of its cells, which two blanks part. Cells
 * are counted from the right, since a name may have blanks. */
#include "fit_text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "summary.h"

enum { MARK_COLUMNS = 2, LEAST_NAME_COLUMNS = 21, BELOW_COLUMNS = 6, LABEL_COLUMNS = 10, LEAST_COLUMNS = 40 };

struct table {
    char **lines;
    size_t n_lines, n_cells, columns;
    size_t name, number, rest, last; /* columns of the widest first, second, further ones without the last, and last */
};

struct row {
    const char *name, *number, *rest, *last; /* each ends where the next begins, with blanks before that */
    size_t name_length, number_length, rest_length;
};

static struct winsize terminal_size(void)
{
    struct winsize size = {0};
    if (isatty(STDOUT_FILENO) && (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || !size.ws_col || !size.ws_row))
        size = (struct winsize){.ws_col = 80, .ws_row = 24};
    return size;
}

size_t terminal_columns(void)
{
    return terminal_size().ws_col;
}

size_t terminal_rows(void)
{
    return terminal_size().ws_row;
}

/* Where the cell begins that ends at `end`. */
static const char *cell_start(const char *line, const char *end)
{
    while (end > line && !(end[-1] == ' ' && end - 1 > line && end[-2] == ' '))
        end--;
    return end;
}

static const char *trim_end(const char *line, const char *end)
{
    while (end > line && end[-1] == ' ')
        end--;
    return end;
}

/* False: the line has fewer cells. */
static bool split_row(const char *line, size_t n_cells, struct row *row)
{
    const char *start = line + MARK_COLUMNS, *at = line + strlen(line), *cells[16] = {0};
    for (size_t i = n_cells; i-- > 0;) {
        cells[i] = i ? cell_start(start, at) : start;
        if (i && cells[i] == start)
            return false;
        at = trim_end(start, cells[i]);
    }
    row->name = cells[0];
    row->name_length = (size_t)(trim_end(start, cells[1]) - cells[0]);
    row->number = cells[1];
    row->number_length = (size_t)(trim_end(start, cells[2]) - cells[1]);
    row->rest = cells[1] + row->number_length;
    row->last = cells[n_cells - 1];
    row->rest_length = (size_t)(trim_end(start, row->last) - row->rest);
    return true;
}

static size_t count_cells(const char *line)
{
    size_t n = 0;
    for (const char *at = line + MARK_COLUMNS; *at; n++) {
        const char *gap = strstr(at, "  ");
        at = gap ? gap + strspn(gap, " ") : at + strlen(at);
    }
    return n;
}

static void widen(size_t *columns, size_t more)
{
    *columns = more > *columns ? more : *columns;
}

static void measure_table(struct table *table)
{
    struct row row;
    char name[TEXT_NAME_CHARS];
    table->n_cells = count_cells(table->lines[0]);
    bool is_table = table->n_cells >= 4 && table->n_cells <= 16;
    for (size_t i = 0; i < table->n_lines; i++) {
        widen(&table->columns, text_columns(table->lines[i]));
        if (!is_table || !split_row(table->lines[i], table->n_cells, &row))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)row.name_length, row.name);
        widen(&table->name, text_columns(name));
        widen(&table->number, row.number_length);
        widen(&table->rest, row.rest_length);
        widen(&table->last, strlen(row.last));
    }
}

/* Further lines begin at `indent`. */
static void fold_line(const char *line, size_t indent, size_t columns, FILE *out)
{
    size_t left = columns;
    for (;;) {
        size_t length = strlen(line), end = left;
        if (length <= left)
            break;
        while (end > 0 && line[end] != ' ')
            end--;
        if (!end || strspn(line, " ") >= end) /* one word */
            end = strcspn(line + strspn(line, " "), " ") + strspn(line, " ");
        fprintf(out, "%.*s\n%*s", (int)(trim_end(line, line + end) - line), line, (int)indent, "");
        line += end + strspn(line + end, " ");
        left = columns - indent;
    }
    fprintf(out, "%s\n", line);
}

static void print_row(const struct table *table, const char *line, size_t name_columns, bool has_last, FILE *out)
{
    struct row row;
    char name[TEXT_NAME_CHARS], cut[TEXT_NAME_CHARS];
    if (!split_row(line, table->n_cells, &row)) {
        fold_line(line, BELOW_COLUMNS, table->columns, out);
        return;
    }
    snprintf(name, sizeof name, "%.*s", (int)row.name_length, row.name);
    text_cut(name, name_columns, cut);
    fprintf(out, "%.*s%s%*s%*.*s%.*s", MARK_COLUMNS, line, cut, (int)(name_columns - text_columns(cut)), "",
            (int)table->number + 2, (int)row.number_length, row.number, (int)row.rest_length, row.rest);
    if (has_last)
        fprintf(out, "%*s%s\n", (int)(table->rest - row.rest_length) + 2, "", row.last);
    else
        fprintf(out, "\n%*s%s\n", BELOW_COLUMNS, "", row.last);
}

static void print_table(struct table *table, size_t columns, FILE *out)
{
    measure_table(table);
    bool fits = table->columns <= columns;
    size_t fixed = MARK_COLUMNS + table->number + 2 + table->rest, wide = fixed + 2 + table->last;
    bool has_last = columns >= wide + LEAST_NAME_COLUMNS && (table->name <= LEAST_NAME_COLUMNS || columns > wide);
    size_t room = has_last ? columns - wide : columns > fixed + LEAST_NAME_COLUMNS ? columns - fixed : LEAST_NAME_COLUMNS;
    size_t name_columns = table->name < room ? table->name : room;
    table->columns = columns;
    for (size_t i = 0; i < table->n_lines; i++) {
        if (fits)
            fprintf(out, "%s\n", table->lines[i]);
        else if (table->name)
            print_row(table, table->lines[i], name_columns, has_last, out);
        else
            fold_line(table->lines[i], LABEL_COLUMNS, columns, out);
    }
}

static bool is_of_table(const char *line)
{
    return (line[0] == ' ' || line[0] == '>') && line[1] == ' ' && line[2] && line[2] != ' ';
}

void fit_text(const char *text, size_t columns, FILE *out)
{
    if (!columns) {
        fputs(text, out);
        return;
    }
    char *copy = memory_copy_text(text), *next = copy;
    columns = columns < LEAST_COLUMNS ? LEAST_COLUMNS : columns;
    struct table table = {.lines = memory_alloc_array(strlen(text) + 1, sizeof *table.lines)};
    while (next && *next) {
        char *line = strsep(&next, "\n");
        if (is_of_table(line))
            table.lines[table.n_lines++] = line;
        bool ends = !is_of_table(line) || !next || !is_of_table(next);
        if (ends && table.n_lines) {
            print_table(&table, columns, out);
            table = (struct table){.lines = table.lines};
        }
        if (!is_of_table(line))
            fold_line(line, LABEL_COLUMNS, columns, out);
    }
    free(table.lines);
    free(copy);
}
