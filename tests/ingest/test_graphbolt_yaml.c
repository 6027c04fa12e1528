/* metadata.yaml: what DGL's documentation shows is understood, everything hostile is refused. */
#include "support/harness.h"

#include "ingest/graphbolt_yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static plim__graphbolt_t yaml;

static plim_status_t parse(const char *text)
{
    return plim__graphbolt_parse("metadata.yaml", text, strlen(text), &yaml);
}

static void reads_one_type(void **state)
{
    (void)state;
    assert_ok(parse("dataset_name: made\n"
                    "graph:\n"
                    "  nodes: [{num: 1000, type: paper}]\n"
                    "  edges:\n"
                    "    - {type: 'paper:cites:paper', format: csv, path: \"edges/e.csv\"}\n"
                    "feature_data:\n"
                    "  - domain: edge\n    name: w\n    format: numpy\n    path: w.npy\n"
                    "  - domain: node\n    name: feat\n    format: numpy\n    path: f.npy\n"
                    "tasks:\n"
                    "  - name: nc\n    num_classes: 3\n"
                    "    train_set:\n"
                    "      - type: paper\n        data:\n"
                    "          - {name: seeds, format: numpy, path: a.npy}\n"
                    "          - {name: labels, format: numpy, path: b.npy}\n"
                    "    test_set: [{data: [{format: torch, path: c.pt}]}]\n"
                    "  - name: another\n    train_set: [{}, {}]\n"));
    assert_int_equal(yaml.num_nodes, 1000);
    assert_string_equal(yaml.edges.path, "edges/e.csv");
    assert_string_equal(yaml.edges.format, "csv");
    assert_int_equal(yaml.num_features, 2);
    assert_string_equal(yaml.features[1].domain, "node");
    assert_string_equal(yaml.features[1].path, "f.npy");
    assert_int_equal(yaml.num_arrays[0], 2);
    assert_string_equal(yaml.arrays[0][1].name, "labels");
    assert_string_equal(yaml.arrays[0][1].path, "b.npy");
    assert_int_equal(yaml.num_arrays[1], 0);
    assert_string_equal(yaml.arrays[2][0].format, "torch");
}

static void refuses_what_is_no_such_file(void **state)
{
    (void)state;
    const char *bad[] = {
        "",
        "graph",
        "[]",
        "{}",
        "graph: {edges: [{format: csv}]}",
        "graph: {nodes: [{num: -1}], edges: [{path: e}]}",
        "graph: {nodes: [{num: 99999999999999999999}], edges: [{path: e}]}",
        "graph: {nodes: [{num: 1e3}], edges: [{path: e}]}",
        "{[a]: b}",
        "a: b: c",
        "graph:\n\t- x",
        "graph: {edges: [{format: averyveryverylongformat, path: e}]}",
        "feature_data: [{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{name: x}]",
        "tasks: [{test_set: [{data: [{},{},{},{},{name: x}]}]}]",
        "a: [[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]",
        "graph: {edges: [{path: \"a\\0b\"}]}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(parse(bad[i]), PLIM_ERR_DATA);
}

static void refuses_what_it_does_not_do(void **state)
{
    (void)state;
    const char *unsupported[] = {"graph: {nodes: [{num: 1}, {num: 2}], edges: [{path: e}]}",
                                 "graph: {edges: [{path: e}, {path: f}]}",
                                 "graph_topology: {path: x.pt}", "a: &x [1]\nb: *x",
                                 "tasks: [{train_set: [{type: a}, {type: b}]}]"};
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++)
        assert_int_equal(parse(unsupported[i]), PLIM_ERR_UNSUPPORTED);
}

static void refuses_giants(void **state)
{
    (void)state;
    char *text = malloc(PLIM__YAML_MAX + 1);
    assert_non_null(text);
    memset(text, '[', PLIM__YAML_MAX + 1);
    assert_int_equal(plim__graphbolt_parse("m", text, PLIM__YAML_MAX + 1, &yaml), PLIM_ERR_DATA);
    assert_int_equal(plim__graphbolt_parse("m", text, PLIM__YAML_MAX, &yaml), PLIM_ERR_DATA);
    memset(text, 'k', PLIM__YAML_MAX);
    text[PLIM__YAML_MAX - 2] = ':';
    assert_int_equal(plim__graphbolt_parse("m", text, PLIM__YAML_MAX, &yaml), PLIM_ERR_DATA);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_one_type),
        cmocka_unit_test(refuses_what_is_no_such_file),
        cmocka_unit_test(refuses_what_it_does_not_do),
        cmocka_unit_test(refuses_giants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
