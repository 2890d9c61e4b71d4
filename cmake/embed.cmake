# Writes a C file with the texts of kernels, src/cuda/kernels/NAME.cu as the array ek_text_NAME (src/cuda/text.h):
#     cmake -DFOLDER=… -DNAMES=words,copy,… -DOUTPUT=FILE.c -P embed.cmake
# Called by the build of the library. SPDX-License-Identifier: MIT
string(REPLACE "," ";" names "${NAMES}")
set(code "/* Made by cmake/embed.cmake from src/cuda/kernels. SPDX-License-Identifier: MIT */\n#include \"cuda/text.h\"\n")
foreach(name IN LISTS names)
	file(READ "${FOLDER}/${name}.cu" bytes HEX)
	string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
	string(REPLACE "'\\x0a'," "'\\n',\n" bytes "${bytes}") # a line of the text is a line here
	string(APPEND code "\nconst char ek_text_${name}[] = {\n${bytes}0};\n")
endforeach()
file(WRITE "${OUTPUT}" "${code}")
