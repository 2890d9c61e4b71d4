"""The report: results of evenkeel's programs as one HTML page, pictures, and the tables of the documents.
`make report` runs __main__.py; ARCHITECTURE.md names the files. SPDX-License-Identifier: MIT"""
