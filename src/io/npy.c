/*
 * NumPy's .npy header:
 *
 *     \x93NUMPY  major minor  length (u16 for 1.0, u32 from 2.0 on)  a Python dict  padding  '\n'
 *
 * The dict is parsed as NumPy parses it (any order of keys, either quote, any blanks, a trailing
 * comma), but with exactly the three keys that NumPy writes.
 */
#include "io/npy.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/printable.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* NumPy's own reader accepts 10,000 bytes by default. */
#define HEADER_MAX 16384

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [PLIM__NPY_BOOL] = {"|b1", 1}, [PLIM__NPY_I8] = {"|i1", 1},  [PLIM__NPY_U8] = {"|u1", 1},
    [PLIM__NPY_I16] = {"<i2", 2},  [PLIM__NPY_U16] = {"<u2", 2}, [PLIM__NPY_I32] = {"<i4", 4},
    [PLIM__NPY_U32] = {"<u4", 4},  [PLIM__NPY_I64] = {"<i8", 8}, [PLIM__NPY_U64] = {"<u8", 8},
    [PLIM__NPY_F16] = {"<f2", 2},  [PLIM__NPY_F32] = {"<f4", 4}, [PLIM__NPY_F64] = {"<f8", 8},
};
#define NUM_DTYPES ((int)(sizeof dtypes / sizeof dtypes[0]))

size_t plim__dtype_size(plim__dtype_t type)
{
    return dtypes[type].size;
}

const char *plim__dtype_name(plim__dtype_t type)
{
    return dtypes[type].name;
}

/* The rest of the text of the dict. */
typedef struct cursor {
    const char *at;
    const char *end;
    const char *reader_name;
} cursor_t;

static plim_status_t bad_header(const cursor_t *cursor, const char *what)
{
    return plim__fail(PLIM_ERR_DATA, "%s: not a NumPy header: %s", cursor->reader_name, what);
}

/* The next character that is not blank, -1 at the end. */
static int peek(cursor_t *cursor)
{
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\t' ||
                                        *cursor->at == '\n' || *cursor->at == '\r'))
        cursor->at++;
    return cursor->at < cursor->end ? (unsigned char)*cursor->at : -1;
}

static bool take(cursor_t *cursor, char wanted)
{
    if (peek(cursor) != wanted)
        return false;
    cursor->at++;
    return true;
}

static bool take_word(cursor_t *cursor, const char *word)
{
    size_t size = strlen(word);
    (void)peek(cursor);
    if ((size_t)(cursor->end - cursor->at) < size || memcmp(cursor->at, word, size) != 0)
        return false;
    cursor->at += size;
    return true;
}

/* Takes a quoted string. Escapes are not supported: no name in a header needs them. */
static bool take_string(cursor_t *cursor, const char **text_out, size_t *size_out)
{
    int quote = peek(cursor);
    if (quote != '\'' && quote != '"')
        return false;
    const char *begin = cursor->at + 1;
    const char *close = memchr(begin, quote, (size_t)(cursor->end - begin));
    if (close == NULL)
        return false;
    cursor->at = close + 1;
    *text_out = begin;
    *size_out = (size_t)(close - begin);
    return true;
}

/* Takes a dimension: digits, with an optional L from Python 2. */
static bool take_dimension(cursor_t *cursor, int64_t *value_out)
{
    int64_t value = 0;
    int digit = peek(cursor);
    if (digit < '0' || digit > '9')
        return false;
    for (; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++) {
        if (!plim__mul_i64(value, 10, &value) || !plim__add_i64(value, *cursor->at - '0', &value))
            return false;
    }
    if (cursor->at < cursor->end && *cursor->at == 'L')
        cursor->at++;
    *value_out = value;
    return true;
}

static plim_status_t refuse_dtype(const cursor_t *cursor, const char *text, size_t size)
{
    char shown[33];
    plim__text_printable(text, size, shown, sizeof shown);
    const char *remedy = "save it as an integer, boolean or floating-point array";
    if (size > 1 && text[0] == '>')
        remedy = "it is big-endian; save it as array.astype(array.dtype.newbyteorder('<'))";
    else if (memchr(text, 'O', size) != NULL)
        remedy = "it holds Python objects; save it as an array of numbers";
    else if (memchr(text, 'U', size) != NULL || memchr(text, 'S', size) != NULL)
        remedy = "it holds texts; write labels as labels.csv, or number them: "
                 "numpy.unique(array, return_inverse=True)[1]";
    return plim__fail(PLIM_ERR_DATA, "%s: dtype '%s' is not supported: %s", cursor->reader_name,
                      shown, remedy);
}

static plim_status_t read_dtype(cursor_t *cursor, plim__dtype_t *type_out)
{
    const char *text;
    size_t size;
    if (peek(cursor) == '[')
        return plim__fail(
            PLIM_ERR_DATA,
            "%s: structured arrays are not supported; save each field as an array of its own",
            cursor->reader_name);
    if (!take_string(cursor, &text, &size))
        return bad_header(cursor, "'descr' is not a string");
    const char *code = text;
    size_t code_size = size;
    bool swapped = size > 0 && text[0] == '>';
    if (size > 0 && strchr("<>=|", text[0]) != NULL && text[0] != '\0') {
        code++;
        code_size--;
    }
    for (int i = 0; i < NUM_DTYPES; i++) {
        if (code_size == 2 && memcmp(code, dtypes[i].name + 1, 2) == 0 &&
            (!swapped || dtypes[i].size == 1)) {
            *type_out = (plim__dtype_t)i;
            return PLIM_OK;
        }
    }
    return refuse_dtype(cursor, text, size);
}

static plim_status_t read_shape(cursor_t *cursor, plim__npy_t *npy)
{
    if (!take(cursor, '('))
        return bad_header(cursor, "'shape' is not a tuple");
    npy->num_dims = 0;
    while (!take(cursor, ')')) {
        if (npy->num_dims == PLIM__NPY_DIMS)
            return plim__fail(PLIM_ERR_DATA, "%s: has more than %d dimensions", cursor->reader_name,
                              PLIM__NPY_DIMS);
        if (!take_dimension(cursor, &npy->shape[npy->num_dims++]))
            return bad_header(cursor, "a dimension is not a number from 0 to 2^63-1");
        if (!take(cursor, ',') && peek(cursor) != ')')
            return bad_header(cursor, "'shape' is not a tuple");
    }
    return PLIM_OK;
}

/* Computes the number of elements. The other dimensions may not overflow even when one is 0. */
static plim_status_t count_elements(const cursor_t *cursor, plim__npy_t *npy)
{
    int64_t product = (int64_t)dtypes[npy->type].size;
    int wide = 0;
    bool empty = false;
    for (int i = 0; i < npy->num_dims; i++) {
        wide += npy->shape[i] > 1;
        empty = empty || npy->shape[i] == 0;
        if (!plim__mul_i64(product, plim__max_i64(npy->shape[i], 1), &product))
            return bad_header(cursor, "the shape's product does not fit 63 bits");
    }
    npy->count = empty ? 0 : product / (int64_t)dtypes[npy->type].size;
    npy->fortran = npy->fortran && wide > 1 && !empty;
    return PLIM_OK;
}

enum { KEY_DESCR = 1, KEY_FORTRAN = 2, KEY_SHAPE = 4, KEYS_ALL = 7 };

static plim_status_t read_key(cursor_t *cursor, plim__npy_t *npy, int *key_out)
{
    static const char *const names[] = {"descr", "fortran_order", "shape"};
    const char *text;
    size_t size;
    int index = 0;
    if (!take_string(cursor, &text, &size) || !take(cursor, ':'))
        return bad_header(cursor, "a key is missing");
    while (index < 3 && (strlen(names[index]) != size || memcmp(names[index], text, size) != 0))
        index++;
    *key_out = index < 3 ? 1 << index : 0;
    switch (*key_out) {
    case KEY_DESCR:
        return read_dtype(cursor, &npy->type);
    case KEY_FORTRAN:
        npy->fortran = take_word(cursor, "True");
        if (!npy->fortran && !take_word(cursor, "False"))
            return bad_header(cursor, "'fortran_order' is neither True nor False");
        return PLIM_OK;
    case KEY_SHAPE:
        return read_shape(cursor, npy);
    default:
        return bad_header(cursor, "it has a key other than descr, fortran_order and shape");
    }
}

static plim_status_t read_dict(cursor_t *cursor, plim__npy_t *npy)
{
    int seen = 0;
    if (!take(cursor, '{'))
        return bad_header(cursor, "it is not a dict");
    while (!take(cursor, '}')) {
        int key = 0;
        PLIM_TRY(read_key(cursor, npy, &key));
        if ((seen & key) != 0)
            return bad_header(cursor, "a key occurs twice");
        seen |= key;
        if (!take(cursor, ',') && peek(cursor) != '}')
            return bad_header(cursor, "no comma after a value");
    }
    if (seen != KEYS_ALL)
        return bad_header(cursor, "descr, fortran_order or shape is missing");
    if (peek(cursor) != -1)
        return bad_header(cursor, "data follows the dict");
    return count_elements(cursor, npy);
}

/* Reads magic number, version and length. *size_out: bytes of the dict. */
static plim_status_t read_preamble(plim__reader_t *reader, size_t *size_out)
{
    unsigned char bytes[12];
    PLIM_TRY(plim__reader_read_all(reader, bytes, 10));
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return plim__fail(PLIM_ERR_DATA, "%s: not a .npy file: it does not begin with \\x93NUMPY",
                          reader->name);
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: .npy format %d.%d is not supported (1.0, 2.0, 3.0 are)",
                          reader->name, bytes[6], bytes[7]);
    size_t size = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (bytes[6] > 1) {
        PLIM_TRY(plim__reader_read_all(reader, bytes + 10, 2));
        size |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    }
    if (size > HEADER_MAX)
        return plim__fail(PLIM_ERR_DATA, "%s: its header has %zu bytes; at most %d are supported",
                          reader->name, size, HEADER_MAX);
    *size_out = size;
    return PLIM_OK;
}

/* Compares the size of the data with the header, if the reader knows its size. */
static plim_status_t check_size(const plim__reader_t *reader, const plim__npy_t *npy)
{
    int64_t bytes = npy->count * (int64_t)dtypes[npy->type].size;
    if (reader->size < 0 || reader->size - reader->position == bytes)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "%s has %" PRId64 " bytes of data, but its header says %" PRId64
                      "; it is damaged or incomplete",
                      reader->name, reader->size - reader->position, bytes);
}

plim_status_t plim__npy_read(plim__reader_t *reader, plim__npy_t *npy_out)
{
    char text[HEADER_MAX];
    plim__npy_t npy = {.type = PLIM__NPY_BOOL};
    int64_t begin = reader->position;
    size_t size = 0;
    PLIM_TRY(read_preamble(reader, &size));
    PLIM_TRY(plim__reader_read_all(reader, text, size));
    cursor_t cursor = {text, text + size, reader->name};
    PLIM_TRY(read_dict(&cursor, &npy));
    PLIM_TRY(check_size(reader, &npy));
    npy.header_size = reader->position - begin;
    *npy_out = npy;
    return PLIM_OK;
}

void plim__npy_header(const plim__npy_t *npy, unsigned char header_out[PLIM__NPY_HEADER])
{
    char shape[PLIM__NPY_DIMS * 24] = "";
    size_t used = 0;
    for (int i = 0; i < npy->num_dims; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used,
                                 i == 0 ? "%" PRId64 "," : " %" PRId64 ",", npy->shape[i]);
    if (npy->num_dims > 1)
        shape[used - 1] = '\0';
    const size_t dict_size = PLIM__NPY_HEADER - 10;
    memset(header_out, ' ', PLIM__NPY_HEADER);
    memcpy(header_out, magic, sizeof magic);
    header_out[6] = 1;
    header_out[7] = 0;
    header_out[8] = (unsigned char)(dict_size & 0xff);
    header_out[9] = (unsigned char)(dict_size >> 8);
    int size = snprintf((char *)header_out + 10, dict_size,
                        "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                        plim__dtype_name(npy->type), shape);
    header_out[10 + size] = ' ';
    header_out[PLIM__NPY_HEADER - 1] = '\n';
}
