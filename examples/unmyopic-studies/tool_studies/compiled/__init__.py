"""Compiled programs: is the audit right about models that other people's compilers wrote?"""
