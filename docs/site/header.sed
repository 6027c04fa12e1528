#!/bin/sed -Ef
# Comments of the headers as doxygen takes them: before what they describe, or behind it.
/^\/\* What may still change/b
1s,^/\*,/** @file,
s,^( *)/\*( |$),\1/**\2,
s,^( *[^ /*].*)/\* ,\1/**< ,
