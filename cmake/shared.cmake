# Engine sources that the programs use beside the public headers, as curl's tool does with curlx: each is compiled once more into the command. None has
# state of the library or an exported function. tools/check-layers reads this list, and the headers without a source file (base/check, base/clock).
set(shared_sources
  base/fail         # a failure's status and text: programs have their own
  base/json_scan    # JSON of others, read in place
  base/json_write   # JSON into a fixed buffer
  base/printable    # texts of others
  mem/cgroup        # control groups, for the watch
  mem/headroom
  mem/kernel_text
  io/commit         # a file that appears whole
  io/own            # directories that others can write to
  io/place)
