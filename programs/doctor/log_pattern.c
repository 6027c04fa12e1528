/* Matches one pattern against one line, without recursion: a wildcard that failed is extended, the
 * wildcards before it are not tried again. */
#include "doctor/log_pattern.h"

#include <ctype.h>
#include <string.h>

bool doctor_begins(const char *at, const char *end, const char *word)
{
    const size_t length = strlen(word);
    return (size_t)(end - at) >= length && memcmp(at, word, length) == 0;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

static const char *parse_integer(const char *at, const char *end, int64_t *value_out)
{
    const bool negative = at < end && *at == '-';
    int64_t value = 0;
    at += negative;
    if (!digit(at, end))
        return NULL;
    for (; digit(at, end); at++)
        value = value > DOCTOR_FIGURE_MOST / 10 ? DOCTOR_FIGURE_MOST : value * 10 + (*at - '0');
    *value_out = negative ? -value : value;
    return at;
}

/* The power of 1024 of a unit at `at`, and its end. */
static const char *parse_unit(const char *at, const char *end, int *power_out)
{
    static const char letters[] = "KMGTPE";
    const char *letter = at < end ? strchr(letters, toupper((unsigned char)*at)) : NULL;
    *power_out = 0;
    if (letter == NULL || *letter == '\0') {
        if (end - at >= 5 && memcmp(at, "bytes", 5) == 0)
            return at + 5;
        return at < end && *at == 'B' ? at + 1 : at;
    }
    *power_out = (int)(letter - letters) + 1;
    at++;
    at += at < end && *at == 'i';
    at += at < end && (*at == 'B' || *at == 'b');
    return at;
}

const char *doctor_size_parse_at(const char *at, const char *end, int64_t *bytes_out)
{
    double value = 0, part = 0.1;
    int power;
    if (!digit(at, end))
        return NULL;
    for (; digit(at, end); at++)
        value = value * 10 + (*at - '0');
    if (at < end && *at == '.')
        for (at++; digit(at, end); at++, part /= 10)
            value += part * (*at - '0');
    const char *unit = at;
    while (unit < end && blank(*unit))
        unit++;
    const char *behind = parse_unit(unit, end, &power);
    /* "16 Tasks" is no 16 TiB. */
    if (behind < end && isalpha((unsigned char)*behind)) {
        behind = at;
        power = 0;
    }
    for (; power > 0; power--)
        value *= 1024;
    *bytes_out = value < (double)DOCTOR_FIGURE_MOST ? (int64_t)(value + 0.5) : DOCTOR_FIGURE_MOST;
    return behind > unit ? behind : at;
}

#define WORD_MOST 512

/* The wildcard that is being extended. */
typedef struct wildcard {
    const char *pattern; /* behind it; NULL: none yet */
    const char *at;      /* the text behind it */
    int word;            /* the number of its word; -1: any characters */
    int numbers, words;
} wildcard_t;

static void copy_word(char word_out[DOCTOR_WORD], const char *begin, const char *end)
{
    const size_t length =
        (size_t)(end - begin) < DOCTOR_WORD ? (size_t)(end - begin) : DOCTOR_WORD - 1;
    memcpy(word_out, begin, length);
    word_out[length] = '\0';
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && blank(*at))
        at++;
    return at;
}

/* One element of the pattern at *at; false when it does not match. */
static bool match_element(const char **pattern, const char **at, const char *end,
                          doctor_captured_t *captured)
{
    const char *p = *pattern, *s = *at;
    int64_t value;
    if (p[0] == '%') {
        s = p[1] == 'd' ? parse_integer(s, end, &value) : doctor_size_parse_at(s, end, &value);
        if (s == NULL)
            return false;
        if (captured->numbers < DOCTOR_CAPTURES)
            captured->number[captured->numbers++] = value;
        p += 2;
    } else if (p[0] == ' ') {
        if (s == end || !blank(*s))
            return false;
        s = skip_blanks(s, end);
        p++;
    } else if (p[0] == '$' && p[1] == '\0') {
        s = skip_blanks(s, end);
        if (s != end)
            return false;
        p++;
    } else {
        if (s == end || *s != *p)
            return false;
        s++;
        p++;
    }
    *pattern = p;
    *at = s;
    return true;
}

static bool match_here(const char *pattern, const char *at, const char *end,
                       doctor_captured_t *captured)
{
    wildcard_t open = {NULL, NULL, -1, 0, 0};
    const char *begin[2] = {at, at}, *behind[2] = {at, at};
    int letters = 0; /* of all words: a longer one is no word, and looking on would take long */
    captured->numbers = captured->words = 0;
    while (*pattern != '\0') {
        if (pattern[0] == '%' && (pattern[1] == '*' || pattern[1] == 'w')) {
            open = (wildcard_t){pattern + 2, at, -1, captured->numbers, captured->words};
            if (pattern[1] == 'w' && captured->words < 2) {
                open.word = captured->words++;
                open.words = captured->words;
                begin[open.word] = behind[open.word] = at;
            } else if (pattern[1] == 'w') {
                open.word = 2;
            }
            pattern += 2;
            continue;
        }
        if (match_element(&pattern, &at, end, captured))
            continue;
        if (open.pattern == NULL || open.at == end || (open.word >= 0 && blank(*open.at)))
            return false;
        open.at++;
        if (open.word >= 0 && ++letters > WORD_MOST)
            return false;
        if (open.word >= 0 && open.word < 2)
            behind[open.word] = open.at;
        at = open.at;
        pattern = open.pattern;
        captured->numbers = open.numbers;
        captured->words = open.words;
    }
    /* A word at the pattern's end goes up to the next blank. */
    if (open.pattern != NULL && *open.pattern == '\0' && open.word >= 0 && open.word < 2)
        while (behind[open.word] < end && !blank(*behind[open.word]))
            behind[open.word]++;
    for (int i = 0; i < captured->words; i++)
        copy_word(captured->word[i], begin[i], behind[i]);
    return true;
}

/* The code point that ends before `at`; 0 at the line's beginning. */
static unsigned code_point_before(const char *line, const char *at)
{
    unsigned value = 0;
    for (int shift = 0; at > line && shift < 24; shift += 6) {
        const unsigned char byte = (unsigned char)*--at;
        if ((byte & 0xc0) != 0x80) /* the first byte: its own bits are behind the marks */
            return value | (byte < 0x80 ? byte : (byte & (0x7fU >> (shift / 6 + 1)))) << shift;
        value |= (byte & 0x3fU) << shift;
    }
    return value;
}

/* Letters of any script; emoji, signs and full-width punctuation are none. */
static bool is_letter(unsigned code)
{
    return code < 0x80 ? isalnum((int)code) != 0
                       : code < 0x2000 || (code >= 0x3040 && code < 0xfe00);
}

/* Whether a log's level ends at `at`. */
static bool is_level(const char *line, const char *at)
{
    static const char *const levels[] = {"ERROR", "Error", "CRITICAL", "FATAL", "WARNING"};
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        const size_t length = strlen(levels[i]);
        if ((size_t)(at - line) >= length && memcmp(at - length, levels[i], length) == 0)
            return true;
    }
    return false;
}

/* Whether what stands before `at` announces a message: nothing, a label, a level, a sign. Another
 * word does not, nor does a quotation mark, unless it belongs to an exception, as in
 * RuntimeError('…'). */
static bool is_announced(const char *line, const char *begin, const char *at)
{
    static const char quotes[] = "\"'`";
    while (at > line && blank(at[-1]))
        at--;
    if (at <= begin)
        return true;
    if (strchr(quotes, at[-1]) != NULL)
        return at - line >= 2 && at[-2] == '(';
    const unsigned code = code_point_before(line, at);
    if (is_level(line, at))
        return true;
    return !is_letter(code) && code != '#' && (code < 0x2018 || code > 0x201f);
}

/* Whether a sentence ends at `at`, or goes on with where or when it happened. */
static bool is_told(const char *at, const char *end)
{
    static const char *const words[] = {"on", "in", "at", "during", "while", "when", "error"};
    const char *next = skip_blanks(at, end);
    if (next == end)
        return true;
    if (next == at)
        return !isalnum((unsigned char)*at) && *at != '?' && *at != '/' && *at != '-';
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *behind = next + strlen(words[i]);
        if (doctor_begins(next, end, words[i]) &&
            (behind == end || !isalnum((unsigned char)*behind)))
            return true;
    }
    return !isalnum((unsigned char)*next);
}

static bool match_report(const char *text, const char *line, const char *begin, const char *end,
                         doctor_captured_t *captured)
{
    const size_t length = strlen(text);
    captured->numbers = captured->words = 0;
    for (const char *at = line; at < end; at++) {
        at = memmem(at, (size_t)(end - at), text, length);
        if (at == NULL)
            return false;
        if (is_announced(line, begin, at) && is_told(at + length, end)) {
            captured->at = at;
            return true;
        }
    }
    return false;
}

bool doctor_pattern_match(const char *pattern, const char *line, const char *begin, const char *end,
                          doctor_captured_t *captured_out)
{
    captured_out->at = begin;
    if (pattern[0] == '~')
        return match_report(pattern + 1, line, begin, end, captured_out);
    if (pattern[0] == '^')
        return (pattern[1] == '%' || pattern[1] == ' ' || (begin < end && *begin == pattern[1])) &&
               match_here(pattern + 1, begin, end, captured_out);
    const size_t literal = strcspn(pattern, "% $");
    for (const char *at = line; at < end; at++) {
        at = memmem(at, (size_t)(end - at), pattern, literal);
        if (at == NULL)
            return false;
        if (match_here(pattern, at, end, captured_out)) {
            captured_out->at = at;
            return true;
        }
    }
    return false;
}

/* "[rank0]: ", "[ 3134.420244] ", "(raylet) "; NULL: none. */
static const char *skip_bracket(const char *at, const char *end, char open, char close)
{
    if (at == end || *at != open)
        return NULL;
    for (const char *s = at + 1; s < end && s - at < 64; s++)
        if (*s == close) {
            s++;
            s += s < end && *s == ':';
            return s < end && blank(*s) ? skip_blanks(s, end) : NULL;
        }
    return NULL;
}

static const char *skip_token(const char *at, const char *end)
{
    while (at < end && !blank(*at))
        at++;
    return skip_blanks(at, end);
}

/* "2025-01-10T15:27:25.123 ", "2025-01-10 15:27:25,123 "; NULL: none. */
static const char *skip_date(const char *at, const char *end)
{
    static const char form[] = "dddd-dd-dd";
    for (size_t i = 0; i < sizeof form - 1; i++, at++)
        if (form[i] == 'd' ? !digit(at, end) : at == end || *at != form[i])
            return NULL;
    if (at < end && *at == 'T')
        return skip_token(at, end);
    if (end - at > 3 && *at == ' ' && digit(at + 1, end) && at[3] == ':')
        return skip_token(at + 1, end);
    return NULL;
}

/* "Apr 18 02:04:10 host kernel: " up to the host; NULL: none. */
static const char *skip_syslog(const char *at, const char *end)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    if (end - at < 16 || at[3] != ' ' || at[9] != ':' || at[12] != ':')
        return NULL;
    for (const char *month = months; *month != '\0'; month += 3)
        if (memcmp(at, month, 3) == 0)
            return skip_token(at + 16, end);
    return NULL;
}

/* "0: ", "systemd[1]: ", "slurmstepd-node7: "; NULL: none. */
static const char *skip_label(const char *at, const char *end)
{
    static const char *const labels[] = {
        "kernel: ", "slurmstepd: ", "error: ", "srun: ", "stderr F ", "stdout F ", "earlyoom: "};
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++)
        if (doctor_begins(at, end, labels[i]))
            return skip_blanks(at + strlen(labels[i]), end);
    const char *s = at;
    while (s < end && s - at < 64 && !blank(*s) && *s != ':')
        s++;
    if (s == at || s == end || *s != ':' || s + 1 == end || !blank(s[1]))
        return NULL;
    const bool number = digit(at, end) && digit(s - 1, end) && s - at <= 5;
    if (number || s[-1] == ']' || doctor_begins(at, end, "slurmstepd-"))
        return skip_blanks(s + 1, end);
    return NULL;
}

const char *doctor_message_begin(const char *line, const char *end)
{
    line = skip_blanks(line, end);
    for (int i = 0; i < 8; i++) {
        const char *next = skip_bracket(line, end, '[', ']');
        if (next == NULL)
            next = skip_bracket(line, end, '(', ')');
        if (next == NULL)
            next = skip_date(line, end);
        if (next == NULL)
            next = skip_syslog(line, end);
        if (next == NULL)
            next = skip_label(line, end);
        if (next == NULL || next == end)
            break;
        line = next;
    }
    return line;
}

const char *doctor_pattern_triple(const char *pattern)
{
    return pattern + (pattern[0] == '~');
}

unsigned doctor_triple_hash(const char *at)
{
    const unsigned char *byte = (const unsigned char *)at;
    return (byte[0] * 31U + byte[1] * 5U + byte[2] * 131U) % DOCTOR_TRIPLES;
}
