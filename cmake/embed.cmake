# Writes a C file with the texts of files, FOLDER/NAME.EXTENSION as the array PREFIX_NAME, which HEADER declares:
#     cmake -DFOLDER=… -DNAMES=words,copy,… -DEXTENSION=cu -DPREFIX=ek_text -DHEADER=cuda/text.h -DOUTPUT=FILE.c -P embed.cmake
# Called by the build of the library (kernels) and of the program (a measured machine). SPDX-License-Identifier: MIT
string(REPLACE "," ";" names "${NAMES}")
set(code "/* Made by cmake/embed.cmake. SPDX-License-Identifier: MIT */\n#include \"${HEADER}\"\n")
foreach(name IN LISTS names)
	file(READ "${FOLDER}/${name}.${EXTENSION}" bytes HEX)
	string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
	string(REPLACE "'\\x0a'," "'\\n',\n" bytes "${bytes}") # a line of the text is a line here
	string(MAKE_C_IDENTIFIER "${name}" identifier)
	string(APPEND code "\nconst char ${PREFIX}_${identifier}[] = {\n${bytes}0};\n")
endforeach()
file(WRITE "${OUTPUT}" "${code}")
